import dataclasses
import hashlib
from decimal import Decimal
from importlib.resources import files

import pytest

from paiq.analysis.claims import Verdict, check
from paiq.analysis.paper import claims, mismatches, offsets, verdicts
from paiq.analysis.published import (
    OURS,
    Place,
    better_encoder,
    dedicated_table,
    groups,
    main_table,
    paired_intervals,
    read,
    recomputed_marks,
    scaling_table,
    values,
)

# Of the tables as they were taken from the paper.
DIGESTS = {
    "bootstrap": "48453aacabaa0ae68715cf1f1d3cfb42a44b9a31fab880e143fe45357f30b253",
    "efficiency": "b807126fc7d5f98e44d61b66ba3bcd1883501f2dec3c42d7c192ad5b19b32d9e",
    "empty": "ae96bd3b8b4499fcfaa44e03fce95c174b1fcbce5b7cfad882ccad7613d812bd",
    "main": "9f708b9ed6c6c114f6935cb13a506d9ed753fab0e726f90e7b334a13b33c9fdc",
    "params": "13977f4535d98dd3c3331380d55a8937f0855faf9536a85d8aa4dc1140bd5e4b",
    "provenance": "a862fad5d7a69fb2afbf1aabbdd9d0e2c1540b898400bf7402fb46899ef026de",
    "qwen2b_vqa": "b5f3b5366b6467e1a495918212b545d2ab643ae55239112e74458ec63ff1a6a8",
    "scaling": "864c4a03d2d1277a2c0100da7f24dcafc72e5bb0d3db337dc33c9dae664c4bc1",
}


@pytest.fixture(scope="module")
def found():
    return {claim.claim: claim for claim in claims()}


@pytest.mark.parametrize("name", DIGESTS)
def test_a_published_table_is_byte_for_byte_as_taken(name):
    data = (files("paiq.analysis") / "paper" / f"table_{name}.csv").read_bytes()
    assert hashlib.sha256(data).hexdigest() == DIGESTS[name]


def test_all_two_hundred_and_forty_differences_come_out():
    tables = (main_table(), scaling_table())
    assert [sum(row.delta is not None for row in table.values()) for table in tables] == [192, 48]
    assert [mismatches(table) for table in tables] == [[], []]


@pytest.mark.parametrize(
    "change",
    [
        {"delta": Decimal("49.39")},
        {"arrow": "down"},
        {"colour": "red"},
        {"value": Decimal("40.60")},
    ],
)
def test_a_changed_digit_arrow_or_colour_is_found(change):
    place = Place("Qwen3.5-2B", "FLUX-Reason", "DINOv3", "accuracy")
    table = main_table() | {place: dataclasses.replace(main_table()[place], **change)}
    assert mismatches(table) == [place]


def test_all_fifty_six_columns_are_marked_as_their_values_say():
    columns = 0
    for table in (main_table(), scaling_table()):
        given = recomputed_marks(table)
        assert {place: row.mark for place, row in table.items()} == given
        columns += len(groups(table))
    assert columns == 56


def test_both_tables_agree_where_they_print_the_same_cell():
    shared = main_table().keys() & scaling_table().keys()
    assert len(shared) == 48
    assert len(values()) == 224 + 72 - 48


def test_every_difference_of_means_lies_near_the_middle_of_its_interval():
    far = offsets()
    assert len(far) == len(paired_intervals()) == 40
    largest = max(far, key=lambda place: abs(far[place]))
    assert abs(far[largest]) == pytest.approx(Decimal("0.045"), abs=Decimal("0.0005"))
    assert (largest.backbone, largest.dataset) == ("Llama-3.1-8B", "A-OKVQA")


def test_the_comparators_are_those_the_intervals_were_drawn_against():
    settings = dict.fromkeys((i.place.backbone, i.place.dataset) for i in paired_intervals())
    chosen: dict[str, list[str]] = {}
    for backbone, dataset in settings:
        chosen.setdefault(backbone, []).append(better_encoder(backbone, dataset))
    assert chosen == {
        "Qwen3.5-2B": ["DINOv3"] * 4,
        "Qwen3.5-9B": ["SigLIP"] * 4,
        "Qwen3.5-27B": ["SigLIP"] * 4,
        "InternVL3.5-8B": ["SigLIP", "SigLIP", "DINOv3", "DINOv3"],
        "Llama-3.1-8B": ["SigLIP", "SigLIP", "DINOv3", "DINOv3"],
    }


@pytest.mark.parametrize(
    ("claim", "number", "verdict"),
    [
        ("lead in Accuracy over the strongest competitor", "1.11 to 4.78", Verdict.OK),
        ("the same on average", "about 2.9", Verdict.AS_READ),
        ("settings with higher Accuracy than both", "19 of 20", Verdict.OK),
        ("settings with lower Hallucination than both", "20 of 20", Verdict.OK),
        ("settings whose intervals favour PAIQ", "18 of 20", Verdict.OK),
        ("27B comparisons with both single encoders", "16 of 16", Verdict.OK),
        ("differences of printed means that lie inside", "40 of 40", Verdict.OURS),
        ("gain in macro Accuracy over fixed", "SEED +21.24, A-OKVQA +16.58", Verdict.NOT_DERIVABLE),
        ("pooled 2B responses", "2714 of 4,000", Verdict.NOT_DERIVABLE),
        ("all of them favour PAIQ", "4 of 4 printed", Verdict.NOT_DERIVABLE),
        ("share of recovered axes", "0.3044 %", Verdict.OK),
        ("rows add up to", "330", Verdict.OK),
        ("optimizer steps", "3,126", Verdict.AS_READ),
        ("clustering comparator's projector", "6,295,552", Verdict.OK),
        ("27B coordinates in GFLOPs", "4 of 4", Verdict.OK),
        ("relative percentages", "20 of 20", Verdict.OK),
        ("cells of the parameter table", "12 of 12", Verdict.OK),
        ("PAIQ, Qwen3.5-27B: Accuracy", "83.98 / 21.51", Verdict.OURS),
        ("PAIQ, Llama-3.1-8B: Accuracy", "60.39 / 49.38", Verdict.OURS),
        ("Llama-3.1-8B: columns where PAIQ is best", "0 / 0 of 4, 9 red", Verdict.OURS),
        ("InternVL3.5-8B: columns where PAIQ is best", "3 / 2 of 4, 5 red", Verdict.OURS),
    ],
)
def test_a_claim_comes_out_with_its_verdict(found, claim, number, verdict):
    (hit,) = [item for name, item in found.items() if name.startswith(claim)]
    assert (hit.recomputed, hit.verdict) == (number, verdict)


def test_no_claim_of_the_paper_differs_and_three_cannot_be_derived(found):
    counts = verdicts(list(claims()))
    assert counts[Verdict.DIFFERS] == 0
    assert counts[Verdict.NOT_DERIVABLE] == 3


def test_a_claim_that_does_not_come_out_is_called_so():
    assert check("a", "b", "18 of 20", "17 of 20").verdict is Verdict.DIFFERS


def test_the_reading_of_the_average_names_the_other_reading(found):
    note = found["the same on average"].note
    assert "2.9375" in note
    assert "+6.03 (MERV, Qwen3.5-2B) and +1.83 (CoME-VL, Qwen3.5-9B)" in note
    assert "81.82" in found["gain in macro Accuracy over fixed Q = I, 2B"].note


def test_the_dedicated_archive_holds_the_fixed_rotation_that_the_main_table_lacks():
    methods = {interval.place.method for interval in dedicated_table()}
    assert "PAI (w/o orthogonal Q)" in methods
    assert OURS in methods
    assert {row["source"] for row in read("provenance")} == {
        "total",
        "gpt_4o",
        "qwen_recovery",
        "terminal",
    }
