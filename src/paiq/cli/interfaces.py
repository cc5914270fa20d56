"""The visual interfaces: a list, or one with its equations, tokens and parameters.

examples:
  paiq interfaces
  paiq interfaces paiq --hidden-size 4096
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="show this one")
    parser.add_argument(
        "--hidden-size", type=int, default=2048, help="width of the language model (default 2048)"
    )


def run(args: argparse.Namespace) -> int:
    from paiq.interfaces import INTERFACES, available, describe, split_settings

    if args.name:
        print(describe(args.name, args.hidden_size))
        return 0
    print(f"{'name':<12}{'tokens':>7}{'parameters':>14}   at hidden size {args.hidden_size}")
    for name in available():
        kind = INTERFACES[name]
        sizes, options = split_settings(name, {"hidden_size": args.hidden_size})
        count = kind.count_parameters(sizes, options)
        print(f"{name:<12}{kind.count_tokens(sizes, options):>7}{count:>14,}   {kind.equation}")
    return 0
