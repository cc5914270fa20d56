import dataclasses

import numpy as np
import pytest

from paiq.errors import DataError
from paiq.report.demo_page import demo_markdown, demo_page, write_demo_page
from paiq.report.demo_results import ClaimSpan, DemoAnswer, DemoScores
from paiq.report.demo_summary import demo_differences, demo_rows
from paiq.report.demo_words import findings
from report.examples import LEVELS, card, demo_results, maps, scores
from report.pages import HOSTILE, Page, assert_self_contained


@pytest.fixture(scope="module")
def results():
    return demo_results(seeds=2)


@pytest.fixture(scope="module")
def page(results):
    return assert_self_contained(demo_page(results))


def test_the_page_needs_nothing_beside_it_and_runs_no_script(page):
    assert "script" not in page.tags()


def test_every_mean_of_the_page_is_the_mean_of_the_scores(results, page):
    for method in LEVELS:
        runs = [s for s in results.scores if s.method == method and s.family == "vqa"]
        held_out = np.mean([s.accuracy for s in runs if s.split == "held-out"])
        assert f"{held_out:.1f}" in page.text


def test_right_and_wrong_claims_are_told_apart_without_colour(page):
    states = [a["class"] for tag, a in page.elements if (a.get("class") or "").startswith("claim ")]
    assert {"claim right", "claim wrong"} == set(states)
    css = demo_page(small())
    assert '.claim.right::before { content: "✓' in css
    assert '.claim.wrong::before { content: "✗' in css


def test_an_empty_answer_is_shown_as_empty(page):
    assert "(empty answer)" in page.text


def test_the_same_results_give_the_same_bytes(results, tmp_path):
    write_demo_page(results, tmp_path / "one.html")
    write_demo_page(results, tmp_path / "two.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def small(**changes):
    """Results of three pictures, quick to draw."""
    few = [scores(level, name, "held-out", "vqa", count=3) for name, level in LEVELS.items()]
    kept = dataclasses.replace(demo_results(cards=0), scores=tuple(few), ceilings=(), curves=())
    return dataclasses.replace(kept, **changes)


def hostile_card(text):
    said = DemoAnswer(method="paiq", text=text, accuracy=1, hallucination=2)
    return dataclasses.replace(
        card(1), prompt=text, reference=text, sample_id=text, answers=(said,)
    )


def test_foreign_text_stays_text():
    before = assert_self_contained(demo_page(small(cards=(card(1),))))
    attack = small(
        cards=tuple(map(hostile_card, HOSTILE)),
        recipe={text: text for text in HOSTILE},
        title=HOSTILE[0],
    )
    after = assert_self_contained(demo_page(attack))
    assert after.tags() <= before.tags()
    assert not after.comments
    for text in HOSTILE:
        for char in text:
            if ord(char) < 32 or char in "\u202e\u2066\u200b":
                assert f"\\u{ord(char):04x}" in after.text
                assert char not in after.text.replace("\n", "")


def test_results_without_scores_or_of_unlisted_methods_are_refused():
    with pytest.raises(DataError, match="no method has scores"):
        small(scores=())
    with pytest.raises(DataError, match=r"not listed: \['other'\]"):
        small(scores=(scores(50, "other", "held-out", "vqa", count=3),))


def test_overlapping_claims_are_refused():
    answer = DemoAnswer(
        method="paiq",
        text="a red star",
        accuracy=1,
        hallucination=1,
        claims=(ClaimSpan(start=0, end=5, right=True), ClaimSpan(start=3, end=8, right=True)),
    )
    broken = dataclasses.replace(card(1), answers=(answer,))
    with pytest.raises(DataError, match="overlap"):
        demo_page(small(cards=(broken,)))


def test_an_undefined_update_is_counted_and_left_blank():
    with_maps = dataclasses.replace(card(1), maps=maps())
    page = Page(demo_page(small(cards=(with_maps,))))
    assert "1 undefined" in page.text
    tiles = [a for tag, a in page.elements if tag == "rect" and a.get("fill-opacity") == "0.72"]
    assert len(tiles) == 49 + 48


def test_a_seed_mean_is_resampled_per_picture_and_not_per_run():
    one = scores(60, "paiq", "held-out", "vqa", seed=0)
    two = dataclasses.replace(one, seed=1)
    (single,), (double,) = demo_rows((one,)), demo_rows((one, two))
    assert (double.n, double.seeds) == (120, 2)
    assert double.accuracy == single.accuracy


def test_differences_favour_paiq_when_positive_on_both_axes():
    same = {"split": "held-out", "family": "vqa", "seed": 0, "sample_ids": ("a", "b", "c")}
    ours = DemoScores(method="paiq", accuracy=(90, 80, 70), hallucination=(10, 20, 30), **same)
    theirs = DemoScores(method="pai", accuracy=(50, 40, 60), hallucination=(20, 40, 60), **same)
    (found,) = demo_differences((ours, theirs))
    assert found.accuracy.mean == pytest.approx((40 + 40 + 10) / 3)
    assert found.hallucination.mean == pytest.approx((10 + 20 + 30) / 3)


def test_methods_that_answered_different_samples_are_not_compared():
    ours = scores(60, "paiq", "held-out", "vqa")
    theirs = dataclasses.replace(
        scores(50, "pai", "held-out", "vqa"), sample_ids=tuple(map(str, range(120)))
    )
    with pytest.raises(DataError, match="not answer the same samples"):
        demo_differences((ours, theirs))


@pytest.mark.parametrize(
    ("paiq", "other", "kind", "word"),
    [(80, 50, "won", "ahead of"), (50, 80, "lost", "behind"), (60, 60, "open", "distinguishable")],
)
def test_the_sentences_follow_the_numbers(paiq, other, kind, word):
    ours = scores(paiq, "paiq", "held-out", "vqa", seed=3)
    theirs = scores(other, "concat", "held-out", "vqa", seed=3)
    rows, gaps = demo_rows((ours, theirs)), demo_differences((ours, theirs))
    found = findings(rows, gaps, ())
    assert found[0].kind == kind
    assert word in found[0].text


def test_few_records_are_called_too_few(results):
    assert "too few to conclude" in Page(demo_page(small())).text
    assert "too few to conclude" not in demo_page(results)


def test_the_ceiling_is_explained_where_it_is_drawn(page):
    assert "dashed line" in page.text
    assert "dashed line" not in demo_page(small())


def test_the_markdown_holds_the_findings_and_the_table(results):
    text = demo_markdown(results)
    assert "Learning the rotation" in text
    assert text.count("| paiq |") == 2
    assert "no evidence about natural images" in text
