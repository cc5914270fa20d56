import re
from xml.etree import ElementTree

import numpy as np
import pytest

from paiq.records import AXES
from paiq.report.figures import (
    ComputePoint,
    ForestLine,
    ablation_figure,
    compute_figure,
    distribution_figure,
    forest_figure,
    reliance_figure,
)
from paiq.report.style import INK, colours
from report.pages import Page


def drawings():
    random = np.random.default_rng(0)
    scores = {axis: random.integers(0, 101, 50).astype(float) for axis in AXES}
    points = [
        ComputePoint(backbone=b, method=m, percent=100.0 + i, accuracy=40.0 + i)
        for i, (b, m) in enumerate([("two", "PAIQ"), ("two", "SigLIP"), ("nine", "PAIQ")])
    ]
    line = ForestLine(label="two · pets", low=-1.0, high=2.0)
    return [
        compute_figure(points, "Pets"),
        distribution_figure({"PAIQ": scores, "SigLIP": scores}, "pooled"),
        ablation_figure([("Pets", axis, 30.0, 50.0) for axis in AXES], "Q fixed", "Q learned"),
        forest_figure({axis: [line, line] for axis in AXES}, "PAIQ"),
        reliance_figure(
            np.zeros((8, 8, 3), dtype=np.uint8),
            random.random((4, 4)),
            random.normal(size=(2, 2)),
        ),
    ]


@pytest.fixture(scope="module")
def drawn():
    return {drawing.name: drawing for drawing in drawings()}


def test_every_drawing_is_whole_xml_and_the_same_bytes_again(drawn):
    again = {drawing.name: drawing for drawing in drawings()}
    for name, drawing in drawn.items():
        ElementTree.fromstring(drawing.svg())
        assert drawing.svg() == again[name].svg()


def test_a_drawing_in_a_page_uses_the_pages_colours_and_its_own_names(drawn):
    for name, drawing in drawn.items():
        text = drawing.inline()
        page = Page(text)
        assert not page.open
        assert INK not in text
        assert "var(--" in text
        names = page.values("id")
        assert len(names) == len(set(names))
        assert all(each.startswith(f"{name}-") for each in names)
        used = re.findall(r"url\(#([^)]+)\)", text) + [
            value[1:] for value in page.values("xlink:href") if value.startswith("#")
        ]
        assert set(used) <= set(names)
        assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]+"', "", text)


def test_pdf_is_written(drawn):
    assert drawn["ablation"].pdf().startswith(b"%PDF")


def test_the_reliance_figure_counts_the_blocks_it_shows_as_zero(drawn):
    values = np.random.default_rng(0)
    values.integers(0, 101, 50), values.integers(0, 101, 50), values.random((4, 4))
    negative = int((values.normal(size=(2, 2)) < 0).sum())
    assert f"{negative} of 4 blocks" in drawn["reliance"].caption


def test_ours_keeps_its_colour_and_no_two_methods_share_one():
    names = ["x", "PAIQ", "y", "SigLIP", "DINOv3", "z"]
    painted = colours(names)
    assert painted["PAIQ"] == colours(["PAIQ"])["PAIQ"]
    assert len(set(painted.values())) == len(names)


def test_a_name_with_markup_is_drawn_as_text():
    hostile = '<script>$x$&"]]>'
    drawing = forest_figure(
        {axis: [ForestLine(label=hostile, low=1.0, high=2.0)] for axis in AXES}, "PAIQ"
    )
    page = Page(drawing.inline())
    assert "script" not in page.tags()
    assert hostile in "".join(ElementTree.fromstring(drawing.svg()).itertext())
