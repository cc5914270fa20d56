"""The samples of a source as plain files: one line each, and every picture once, untouched.

What comes out is read again as `jsonl`, and is what a judge reads beside the predictions.
"""

import hashlib
import io
from dataclasses import replace
from pathlib import Path

from PIL import Image

from paiq.data.images import inside, read_image
from paiq.data.opening import Selection
from paiq.data.source import SampleSource
from paiq.files import write_atomically
from paiq.progress import Report, silent
from paiq.records import Sample, write_records

EXTENSIONS = {"JPEG": "jpg", "MPO": "jpg", "TIFF": "tif", "JPEG2000": "jp2"}
"""Of the other formats: their names in lower case."""


def export(source: Selection, folder: Path, name: str, *, report: Report = silent) -> Path:
    """The file `samples/NAME.jsonl` in the folder, whose samples name files below `images/`.

    A picture is called by the digest of its bytes, so that equal ones are one file. A bad record
    or picture stops the work before the samples are written.
    """
    path = inside(folder, f"samples/{name}.jsonl")
    samples = []
    for index in range(len(source)):
        sample = source[index]
        samples.append(replace(sample, image=_picture(source, sample, folder)))
        report(index + 1)
    write_records(path, samples)
    return path


def keep(source: SampleSource, folder: Path, name: str, *, report: Report = silent) -> Path:
    """The file of the samples beside a run's predictions, with what a judge needs of each.

    Pictures of files are copied, because a row of a table cannot be sent; a made world has none.
    """
    if isinstance(source, Selection):
        return export(source, folder, name, report=report)
    path = inside(folder, f"samples/{name}.jsonl")
    write_records(path, (source[index] for index in range(len(source))))
    return path


def _picture(source: Selection, sample: Sample, folder: Path) -> str:
    content = source.image_bytes(sample)
    digest = hashlib.sha256(content).hexdigest()
    read_image(content, source.image_name(sample), first_frame=source.reader.first_frame)
    with Image.open(io.BytesIO(content)) as image:
        form = str(image.format)
    name = f"images/{digest}.{EXTENSIONS.get(form, form.lower())}"
    if not (folder / name).exists():
        write_atomically(folder / name, content)
    return name
