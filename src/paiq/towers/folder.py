"""Where the files of a frozen part lie, and the digest of its weights."""

import hashlib
import json
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from paiq.errors import ConfigError, DataError
from paiq.files import sha256_of

WANTED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
SHA256_DIGITS = 64
BUILTIN = "builtin:"
"""Names of folders that ship inside the package start so, and mean the same on every machine."""
PACKAGE = Path(__file__).resolve().parents[1]


def resolve(name: str, revision: str | None = None) -> Path:
    """The local folder of a hub name or path; downloads what is wanted of a hub snapshot."""
    folder = Path(name).expanduser()
    if name.startswith(BUILTIN):
        folder = PACKAGE / name.removeprefix(BUILTIN)
    if folder.is_dir():
        if revision is not None:
            raise ConfigError(f"{name} is a local folder and has no revision {revision!r}")
        return folder
    if folder.is_absolute() or name.startswith((".", "~", BUILTIN)) or name.count("/") != 1:
        raise ConfigError(
            f"there is no folder {name}; give a local folder or a hub name 'owner/model'"
        )
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(WANTED)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            f"cannot get {name!r} from the hub ({type(error).__name__}); "
            "check the name and your access, or give a local folder"
        ) from error


def checkpoint_folder(name: str | Path, revision: str | None = None) -> Path:
    """As `resolve`, for transformers' callers, who give local folders a revision too."""
    return Path(name) if Path(name).is_dir() else resolve(str(name), revision)


def portable_name(name: str) -> str:
    """What a checkpoint calls a folder: its absolute path, or its place inside the package."""
    folder = Path(name).expanduser()
    if name.startswith(BUILTIN) or not folder.is_dir():
        return name
    folder = folder.resolve()
    if folder.is_relative_to(PACKAGE):
        return BUILTIN + folder.relative_to(PACKAGE).as_posix()
    return str(folder)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an error names the file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path} must hold an object, not {type(values).__name__}")
    return values


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, in name order, all that its index names."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(read_json(index)["weight_map"].values()))
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        raise DataError(f"{folder} lacks weights: {', '.join(missing) or 'no *.safetensors file'}")
    return [folder / name for name in names]


def weights_digest(folder: str | Path) -> str:
    """One SHA-256 over the weight files of a folder: their names and their contents."""
    total = hashlib.sha256()
    for path in weight_files(Path(folder)):
        total.update(f"{path.name} {_content_digest(path)}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _content_digest(path: Path) -> str:
    # The hub's cache names a blob by the SHA-256 of its content: no need to read 50 GB again.
    blob = path.resolve()
    if blob.parent.name == "blobs" and len(blob.name) == SHA256_DIGITS:
        return blob.name
    return sha256_of(path)
