"""What is installed here, which devices there are, and what is missing.

examples:
  paiq doctor
"""

import argparse
import importlib.util
import os
import platform
from importlib.metadata import PackageNotFoundError, version

from paiq import __version__

NEEDED = ("torch", "transformers", "accelerate", "safetensors", "numpy", "pillow")
OPTIONAL = {
    "scipy": ("demo", "statistics"),
    "matplotlib": ("demo", "figures"),
    "jinja2": ("demo", "report pages"),
    "httpx": ("judge", "sending to a judge"),
    "pyarrow": ("data", "parquet files"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    del args
    print(f"paiq {__version__}, Python {platform.python_version()}, {platform.machine()}")
    missing = [name for name in NEEDED if not _report(name, "needed")]
    for name, (extra, use) in OPTIONAL.items():
        _report(name, f"{use}; pip install 'paiq[{extra}]'")
    if not missing:
        _devices()
    return 1 if missing else 0


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
