import numpy as np
import pytest
import torch
from PIL import Image

from paiq.errors import ConfigError
from paiq.model import PaiqImageProcessor
from paiq.towers import Preprocessing, prepare

HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
SPATIAL = {"height": 16, "width": 16, "resample": "bilinear", **HALF}
SEMANTIC = {"height": 24, "width": 24, "resample": "bicubic", **HALF}
STREAMS = {"pixel_values": SPATIAL, "pixel_values_semantic": SEMANTIC}


def picture():
    levels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    return Image.fromarray(levels)


@pytest.fixture
def processor():
    return PaiqImageProcessor(SPATIAL, SEMANTIC)


def test_each_stream_has_its_own_preprocessing(processor):
    found = processor([picture()], return_tensors="pt")
    for name, settings in STREAMS.items():
        assert torch.equal(found[name], prepare([picture()], Preprocessing(**settings)))


def test_arrays_and_tensors_are_pictures_too(processor):
    image = picture()
    array = np.asarray(image)
    channels_first = torch.from_numpy(array.copy()).permute(2, 0, 1)
    expected = processor([image], return_tensors="pt")
    for same in (array, array / 255.0, channels_first):
        found = processor([same], return_tensors="pt")
        assert all(torch.equal(found[name], expected[name]) for name in STREAMS)


def test_a_turned_photograph_is_set_upright(processor):
    image = picture()
    turned = image.transpose(Image.Transpose.ROTATE_90)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be shown turned clockwise
    turned.info["exif"] = exif.tobytes()
    found, expected = (processor([i], return_tensors="pt") for i in (turned, image))
    assert all(torch.equal(found[name], expected[name]) for name in STREAMS)


def test_settings_survive_their_dictionary(processor):
    saved = processor.to_dict()
    again = PaiqImageProcessor(saved["spatial"], saved["semantic"], saved["backend"])
    assert again.to_dict() == processor.to_dict()
    with pytest.raises(ConfigError, match=r"no setting 'hight'.*Did you mean 'height'"):
        PaiqImageProcessor({"hight": 3}, SEMANTIC)
