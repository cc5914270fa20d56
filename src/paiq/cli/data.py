"""Looks at data before hours are spent on it: counts, broken and repeated records, pictures.

A slice is 500:1500, or (500+i)%1145 for 1000, or one of the paper's by name: paper/flux,
paper/caption, paper/seed, paper/a-okvqa. Exit status 1 means something is wrong with the data.

examples:
  paiq data list
  paiq data check cc3m/chat.json --kind llava
  paiq data check cc3m/chat.json --kind llava --slice paper/caption --images --sheet sheet.png
  paiq data check aokvqa --kind a-okvqa --slice paper/a-okvqa --image-folder coco
  paiq data check flux --kind flux --option caption=caption_detail --slice 0:200000
  paiq data check cc3m/chat.json --kind llava --images --write-bad bad.json
  paiq data check cc3m/chat.json --kind llava --skip-bad bad.json
  paiq data export seed.parquet --kind seed-bench --slice paper/seed --to runs/mine --name seed
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paiq.data import DataConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="list | check | export")
    verbs.add_parser("list", help="the formats with their options, and the paper's slices")
    check = verbs.add_parser(
        "check",
        help="count, and find what is broken",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_source(check)
    check.add_argument("--images", action="store_true", help="open and decode every picture")
    check.add_argument("--sheet", type=Path, help="write a contact sheet to this .png or .jpg")
    check.add_argument("--write-bad", type=Path, help="write the list of bad rows to this file")
    export = verbs.add_parser(
        "export",
        help="write samples and pictures as plain files, as a judge reads them",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_source(export)
    export.add_argument("--to", type=Path, required=True, help="the folder, such as a run's")
    export.add_argument("--name", required=True, help="writes samples/NAME.jsonl and images/")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="the file, or the folder of files")
    parser.add_argument("--kind", required=True, help="the format; see paiq data list")
    parser.add_argument("--slice", default="", help="which rows (default: all)")
    parser.add_argument("--image-folder", type=Path, help="where the pictures are, if not beside")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of the format"
    )
    parser.add_argument(
        "--first-frame", action="store_true", help="take the first frame of animations"
    )
    parser.add_argument("--skip-bad", type=Path, help="leave out the rows that such a list names")


def run(args: argparse.Namespace) -> int:
    actions = {"check": _check, "export": _export}
    return actions[args.action](args) if args.action in actions else _list()


def _list() -> int:
    import dataclasses

    from paiq.data import KINDS, PAPER_SLICES

    print("formats (--kind):")
    for name in KINDS:
        print(f"  {name:<12}{KINDS[name].line}")
        for setting in dataclasses.fields(KINDS[name].options):
            print(f"  {'':<14}--option {setting.name}={setting.default!r}")
    print("\nthe paper's slices (--slice):")
    for name, entry in PAPER_SLICES.items():
        print(f"  paper/{name:<9}{entry.rows:<24}{entry.source}")
    return 0


def _check(args: argparse.Namespace) -> int:
    from paiq.data import open_source
    from paiq.data.bad_rows import write_bad
    from paiq.data.check import check, describe
    from paiq.data.sheet import write_sheet
    from paiq.progress import progress

    source = open_source(_config(args))
    if args.sheet:
        write_sheet(source, args.sheet)
        print(f"contact sheet: {args.sheet}")
    with progress("check", len(source)) as report:
        findings = check(source, pictures=args.images, report=report)
    print("\n".join(describe(source, findings)))
    if args.write_bad:
        write_bad(args.write_bad, findings.bad, source.data)
        print(f"{len(findings.bad)} bad rows listed in {args.write_bad}")
    return 1 if findings.bad or findings.duplicates else 0


def _export(args: argparse.Namespace) -> int:
    from paiq.data import open_source
    from paiq.data.export import export
    from paiq.progress import progress

    source = open_source(_config(args))
    with progress("export", len(source)) as report:
        path = export(source, args.to, args.name, report=report)
    print(f"{source.name}: {len(source):,} samples in {path}")
    return 0


def _config(args: argparse.Namespace) -> "DataConfig":
    from paiq.config import override, to_mapping
    from paiq.data import KINDS, DataConfig

    options = override(KINDS[args.kind].options(), args.option)
    return DataConfig(
        kind=args.kind,
        path=args.path,
        slice=args.slice,
        images=args.image_folder,
        options=to_mapping(options),
        first_frame=args.first_frame,
        skip_bad=args.skip_bad,
    )
