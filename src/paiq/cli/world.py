"""The embedded world: look at it, examine its frozen backbones, or pretrain them anew.

`show` draws samples into one picture and prints what is said about them. `probe` measures what the
frozen parts know. `pretrain` makes one part again; on a GPU it takes
minutes, on two CPU cores hours (see docs/world.md).

examples:
  paiq world show --split test --count 8 --out world.png
  paiq world probe
  paiq world probe --part spatial --scenes 2000
  paiq world pretrain --part semantic --device auto --out runs/semantic
  paiq world pretrain --part language --steps 200 --out runs/tiny
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_show(actions.add_parser("show", help="draw samples and print what is said about them"))
    _add_probe(actions.add_parser("probe", help="what the frozen parts know, on held-out scenes"))
    _add_pretrain(actions.add_parser("pretrain", help="make one frozen part anew"))


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--split", default="test", help="train, val, test or shifted")
    parser.add_argument("--start", type=int, default=0, help="first sample")
    parser.add_argument("--count", type=int, default=8, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("world.png"), help="picture to write")


def _add_probe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", help="spatial, semantic or language; all without it")
    parser.add_argument("--scenes", type=int, default=2000, help="scenes the probes are fitted on")
    parser.add_argument("--folder", type=Path, help="weights to examine instead of the shipped")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto")


def _add_pretrain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", required=True, help="spatial, semantic or language")
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--steps", type=int, help="default: what made the shipped weights")
    parser.add_argument("--seconds", type=float, help="end the schedule by the clock instead")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--scenes", type=int, help="different scenes to learn from")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (default)")
    parser.add_argument("--workers", type=int, help="processes that make the scenes")
    parser.add_argument("--from", dest="start", type=Path, help="go on from these weights")


def run(args: argparse.Namespace) -> int:
    return {"show": _show, "probe": _probe, "pretrain": _pretrain}[args.action](args)


def _show(args: argparse.Namespace) -> int:
    from paiq.world.album import show

    for line in show(args.split, range(args.start, args.start + args.count), args.seed, args.out):
        print(line)
    print(f"\npictures: {args.out}")
    return 0


def _probe(args: argparse.Namespace) -> int:
    from paiq.errors import ConfigError
    from paiq.world import PARTS, backbones
    from paiq.world.cards import table
    from paiq.world.parts import examine
    from paiq.world.pretrain import pick_device

    if args.folder and not args.part:
        raise ConfigError("--folder needs --part: say which of spatial, semantic, language it is")
    device = pick_device(args.device)
    for part in [args.part] if args.part else PARTS:
        folder = args.folder or backbones().get(part, Path(part))
        found = examine(part, folder, scenes=args.scenes, device=device, save=False)
        print(f"\n{part}\n{table(found)}", flush=True)
    return 0


def _pretrain(args: argparse.Namespace) -> int:
    from paiq.progress import progress
    from paiq.world.parts import pretrain, recipe

    names = (
        *("steps", "seconds", "batch_size", "learning_rate"),
        *("scenes", "seed", "device", "workers"),
    )
    schedule = recipe(args.part, {name: getattr(args, name) for name in names})
    with progress(f"pretraining {args.part}", schedule.steps) as report:
        steps = pretrain(args.part, args.out, schedule, start=args.start, report=report)
    print(f"{steps} steps; weights, probes and card: {args.out}")
    return 0
