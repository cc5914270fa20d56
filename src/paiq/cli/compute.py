"""Analytical compute and parameters from published shapes: nothing is loaded or run.

The first table repeats the paper's accounting, 2 x parameters x tokens for the two vision
towers and the text tower. The second shows what that accounting leaves out, as our own
estimate. The third counts the trainable parameters.

examples:
  paiq compute
  paiq compute Qwen3.5-27B
  paiq compute --format csv
"""

import argparse

FORMATS = ("txt", "md", "csv", "tex")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backbone", nargs="?", help="show this one (default: all five)")
    parser.add_argument("--format", choices=FORMATS, default="txt", help="default txt")


def run(args: argparse.Namespace) -> int:
    from paiq.analysis.shapes import BACKBONES, backbone
    from paiq.report.compute_tables import compute_table, fusion_table, parameter_table
    from paiq.report.tables import WRITERS

    chosen = [backbone(args.backbone)] if args.backbone else list(BACKBONES.values())
    sizes = sorted({item.hidden for item in chosen})
    for table in (compute_table(chosen), fusion_table(chosen), parameter_table(sizes)):
        print(WRITERS[args.format](table))
    return 0
