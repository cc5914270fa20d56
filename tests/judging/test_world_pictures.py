import io

import numpy as np
import pytest
from PIL import Image

from paiq.errors import DataError
from paiq.judging.jobs import Folder
from paiq.judging.pictures import mime_of
from paiq.judging.world_pictures import drawn
from paiq.records import Sample, Turn
from paiq.world.source import WorldSource


def sample(image):
    return Sample(id="x", image=image, family="description", turns=(Turn(prompt="p"),))


@pytest.mark.parametrize(("split", "seed", "index"), [("test", 0, 3), ("shifted", 2, 1)])
def test_a_scene_reaches_the_judge_as_the_model_saw_it(tmp_path, split, seed, index):
    source = WorldSource(split, size=5, seed=seed)
    picture = Folder(path=tmp_path, images=tmp_path).image_bytes(source[index])
    assert mime_of(picture) == "image/png"
    assert picture == drawn(source[index])
    with Image.open(io.BytesIO(picture)) as shown:
        np.testing.assert_array_equal(np.asarray(shown), np.asarray(source.image(source[index])))


def test_an_exported_file_goes_before_a_drawing(tmp_path):
    path = tmp_path / "world" / "test" / "0" / "1"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"a file")
    assert Folder(path=tmp_path, images=tmp_path).image_bytes(sample("world/test/0/1")) == b"a file"


@pytest.mark.parametrize("image", ["world/test/0", "world/test/0/x", "world/nowhere/0/1"])
def test_what_is_no_scene_is_refused(tmp_path, image):
    with pytest.raises(DataError, match="world"):
        Folder(path=tmp_path, images=tmp_path).image_bytes(sample(image))
