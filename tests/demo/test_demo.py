"""A demo of two methods and a handful of steps, through every stage."""

import re

import pytest

from paiq.demo.gather import gather
from paiq.demo.pipeline import Clock, Demo, answered, look, score_all, steps_done, train_and_answer
from paiq.demo.settings import MODES, DemoSettings
from paiq.errors import ConfigError
from paiq.report.demo_page import demo_markdown, write_demo_page

SETTINGS = DemoSettings(
    mode="quick", steps=2, train=8, held_out=4, cards=2, methods=("paiq", "spatial")
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    made = Demo(SETTINGS, tmp_path_factory.mktemp("demo"))
    look(made)
    train_and_answer(made)
    score_all(made)
    return made


def test_every_method_is_trained_and_has_answered_every_split(demo):
    for run in demo.runs():
        assert steps_done(run.folder) == SETTINGS.steps
        assert answered(demo, run)


def test_the_page_holds_every_method_and_the_maps_of_paiq(demo):
    results = gather(demo, seconds=1.0)
    write_demo_page(results, demo.page)
    page = demo.page.read_text()
    assert not re.search(r'(src|href)="https?:', page)
    assert all(method in page for method in SETTINGS.methods)
    assert [card.maps is not None for card in results.cards] == [True, True]
    assert "| paiq |" in demo_markdown(results)


def test_scores_of_all_methods_are_of_the_same_samples(demo):
    scores = gather(demo, seconds=1.0).scores
    by_cell = {}
    for one in scores:
        by_cell.setdefault((one.split, one.family), set()).add(one.sample_ids)
    assert len(by_cell) == 4
    assert all(len(ids) == 1 for ids in by_cell.values())


def test_a_second_start_trains_and_sends_nothing(demo):
    before = {path: path.read_bytes() for path in demo.out.rglob("*.jsonl")}
    train_and_answer(demo)
    score_all(demo)
    assert {path: path.read_bytes() for path in demo.out.rglob("*.jsonl")} == before


def test_the_recipe_is_the_same_for_every_method(demo):
    def recipe(run):
        return [word for word in demo.recipe(run) if not word.startswith("world/")]

    first, second = demo.runs()
    assert recipe(first) == recipe(second)


def test_the_clock_adds_up_over_starts(tmp_path):
    (tmp_path / "seconds.txt").write_text("10.0\n")
    assert Clock(tmp_path / "seconds.txt").stop() >= 10.0
    assert float((tmp_path / "seconds.txt").read_text()) >= 10.0


def test_modes_are_sound():
    assert MODES["full"].seeds == (42, 43, 44)
    with pytest.raises(ConfigError, match="8 cards"):
        DemoSettings(mode="quick", steps=1, train=1, held_out=4)
