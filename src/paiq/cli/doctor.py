"""What is installed here, which devices there are, and what is missing; or a set-up looked over.

With a model or a run, the set-up is looked over before hours are spent on it: files and the names
and shapes of all weights (contents unread), chat template and placeholders, memory, speed.

examples:
  paiq doctor
  paiq doctor --model Qwen/Qwen3.5-2B
  paiq doctor --model models/llama --spatial models/dinov3 --semantic models/siglip
  paiq doctor --run world/paiq
  paiq doctor --run paper/qwen3.5-9b/paiq
"""

import argparse
import importlib.util
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from paiq import __version__

if TYPE_CHECKING:
    from paiq.model import Setup

NEEDED = ("torch", "transformers", "accelerate", "safetensors", "numpy", "pillow")
OPTIONAL = {
    "scipy": ("demo", "statistics"),
    "matplotlib": ("demo", "figures"),
    "jinja2": ("demo", "report pages"),
    "httpx": ("judge", "sending to a judge"),
    "pyarrow": ("data", "parquet files"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--model", metavar="NAME", help="a language model: hub name or folder")
    what.add_argument("--run", metavar="RUN", help="a recipe, a run folder or a run.yaml")
    parser.add_argument("--spatial", metavar="NAME", help="with --model: the spatial tower")
    parser.add_argument("--semantic", metavar="NAME", help="with --model: the semantic tower")


def run(args: argparse.Namespace) -> int:
    if args.model or args.run:
        return _look_over(args)
    print(f"paiq {__version__}, Python {platform.python_version()}, {platform.machine()}")
    missing = [name for name in NEEDED if not _report(name, "needed")]
    for name, (extra, use) in OPTIONAL.items():
        _report(name, f"{use}; pip install 'paiq[{extra}]'")
    if not missing:
        _devices()
    return 1 if missing else 0


def _look_over(args: argparse.Namespace) -> int:
    from paiq.model import look_over

    findings = look_over(_setup(args))
    for finding in findings:
        print(f"{'ok ' if finding.fine else 'NO '} {finding.subject:<15} {finding.text}")
    return 0 if all(finding.fine for finding in findings) else 1


def _setup(args: argparse.Namespace) -> "Setup":
    from paiq.model import LanguageConfig, Setup
    from paiq.towers import TowerConfig
    from paiq.training import find_run
    from paiq.training.features import DTYPES

    if not args.run:
        spatial, semantic = (
            TowerConfig(name=name) if name else None for name in (args.spatial, args.semantic)
        )
        language = LanguageConfig(name=args.model)
        return Setup(language=language, spatial=spatial, semantic=semantic)
    chosen = find_run(args.run)
    return Setup(
        language=chosen.language,
        spatial=chosen.spatial,
        semantic=chosen.semantic,
        interface=chosen.interface.name,
        interface_options=chosen.interface.options,
        dtype=DTYPES[chosen.dtype],
        micro_batch=chosen.batch.micro,
        checkpointing=chosen.memory.gradient_checkpointing,
        towers_in_memory=not chosen.features.store,
    )


def _report(name: str, note: str) -> bool:
    try:
        print(f"  {name:<14}{version(name)}")
    except PackageNotFoundError:
        print(f"  {name:<14}missing ({note})")
        return False
    return True


def _devices() -> None:
    import torch

    print(f"  {'processors':<14}{os.cpu_count()}, torch uses {torch.get_num_threads()} threads")
    for index in range(torch.cuda.device_count()):
        gigabytes = torch.cuda.get_device_properties(index).total_memory / 2**30
        print(f"  cuda:{index:<9}{torch.cuda.get_device_name(index)}, {gigabytes:.0f} GiB")
    if not torch.cuda.is_available():
        print(f"  {'cuda':<14}none; everything runs on the processor")
    if importlib.util.find_spec("torchvision"):
        print("  torchvision is installed and not needed; a mismatched one breaks transformers")
