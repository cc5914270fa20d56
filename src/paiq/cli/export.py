"""Write a trained model as one folder that refers to nothing else, for serving and sharing.

A run keeps the trained interface alone. A merged folder holds towers and language model too, with
the processor and a model card; transformers loads it after `import paiq`. `--folded` writes the
interface in its cheapest form for inference: same tokens, no longer trainable.

examples:
  paiq export runs/world/paiq --merged exported/paiq
  paiq export runs/world/paiq --merged exported/quick --folded
  paiq export runs/world/paiq --card            (writes the card beside the interface)
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder with a trained interface")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--merged", type=Path, metavar="FOLDER", help="write every weight there")
    what.add_argument("--card", action="store_true", help="write the model card alone")
    parser.add_argument("--folded", action="store_true", help="with --merged: fold the interface")
    parser.add_argument("--results", type=Path, help="a Markdown file to put into the card")


def run(args: argparse.Namespace) -> int:
    from paiq.config import to_mapping
    from paiq.model import PaiqForConditionalGeneration, export_merged, write_card
    from paiq.training import RunFolder

    folder = RunFolder(args.run)
    recipe = to_mapping(folder.read_run())
    results = args.results.read_text(encoding="utf-8") if args.results else None
    target = folder.model
    if args.merged:
        model = PaiqForConditionalGeneration.from_pretrained(folder.model)
        export_merged(model, args.merged, folded=args.folded)
        target = args.merged
    write_card(target, recipe, results)
    print(target)
    return 0
