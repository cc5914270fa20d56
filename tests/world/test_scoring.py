import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paiq.errors import DataError
from paiq.records import Sample, Turn
from paiq.world import WorldSource
from paiq.world.language import DESCRIBE, LETTERS, WORDS, describe
from paiq.world.scenes import ATTRIBUTES, VALUES, scene
from paiq.world.scoring import rules_digest, score

OBJECTS = [
    {"size": "small", "colour": "red", "pattern": "plain", "shape": "star", "place": "top left"},
    {
        "size": "large",
        "colour": "blue",
        "pattern": "dotted",
        "shape": "heart",
        "place": "top right",
    },
]


def described(objects=OBJECTS):
    return Sample(
        id="d",
        image="",
        family="description",
        turns=(Turn(prompt="?"),),
        facts={"objects": objects},
    )


def asked(question="what colour is the star?", options=("blue", "red", "pink", "green")):
    return Sample(
        id="q",
        image="",
        family="vqa",
        turns=(Turn(prompt=question),),
        question=question,
        options=options,
        reference="red",
        facts={"objects": OBJECTS},
    )


def axes(sample, text):
    found = score(sample, text)
    return found.accuracy, found.hallucination


TRUE = "a small red plain star at the top left, a large blue dotted heart at the top right."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRUE, (100, 0)),
        ("", (0, 0)),
        (" \n", (0, 0)),
        ("a star.", (10, 0)),  # one fact of ten
        ("a small red plain star at the top left.", (50, 0)),
        ("a small blue plain star at the top left.", (40, 20)),
        ("A HEART, large and blue.", (30, 0)),
        (TRUE + " a small pink plain circle at the bottom left.", (100, 33)),
        ("top right: a large blue dotted heart; top left: a small red plain star", (100, 0)),
        ("a small pink plain circle at the bottom left.", (0, 100)),
        ("a small red plain circle at the top left.", (40, 20)),  # tied by its place
        ("a red star, a red star.", (20, 50)),  # the second star is none
        ("a big red solid star at the upper left.", (40, 20)),
        ("a lovely day.", (0, 0)),
    ],
)
def test_descriptions_are_scored_by_the_rules(text, expected):
    assert axes(described(), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("red", (100, 0)),
        ("B", (100, 0)),
        ("b", (100, 0)),
        ("B.", (100, 0)),
        ("(B) red", (100, 0)),
        ("the answer is B", (100, 0)),
        ("The star is RED.", (100, 0)),
        ("A red star", (100, 0)),  # the article is no letter
        ("blue", (0, 100)),
        ("A", (0, 100)),
        ("the star is blue", (0, 100)),
        ("orange", (0, 100)),  # no option, yet a wrong answer
        ("", (0, 0)),
        ("  ", (0, 0)),
        ("B blue", (0, 50)),  # letter and text in conflict, the last one counts
        ("A. red", (50, 50)),
        ("red, or A", (0, 50)),
        ("A red", (100, 0)),
        ("red. it is small", (100, 0)),
        ("red. it is large", (100, 50)),  # Accuracy stays
        ("red. a large blue dotted heart at the top right", (100, 0)),
        ("red. a large blue dotted heart at the bottom left", (100, 17)),
        ("a star", (0, 0)),  # repeats the question
        ("at the top left", (0, 0)),  # true, but no answer
        ("at the bottom left", (0, 100)),
    ],
)
def test_answers_are_scored_by_the_rules(text, expected):
    assert axes(asked(), text) == expected


def test_an_option_that_says_the_same_is_right_under_any_letter():
    sample = asked(options=("red", "red", "pink", "green"))
    assert axes(sample, "A") == axes(sample, "B") == (100, 0)


@pytest.mark.parametrize("split", ["val", "test", "shifted"])
def test_the_truth_scores_a_hundred_and_nothing(split):
    source = WorldSource(split, 200)
    for index in range(len(source)):
        sample = source[index]
        text = sample.reference or describe(source.scene(index))
        assert axes(sample, text) == (100, 0), (sample.turns, text)
        if sample.reference:
            right = LETTERS[sample.options.index(sample.reference)]
            more = f"{right}. {sample.reference}. {describe(source.scene(index))}"
            assert axes(sample, right) == axes(sample, more) == (100, 0)


def test_every_wrong_option_scores_nothing_and_a_hundred():
    source = WorldSource("test", 200)
    for index in range(1, len(source), 2):
        sample = source[index]
        for letter, option in zip(LETTERS, sample.options, strict=True):
            if option != sample.reference:
                assert axes(sample, option) == axes(sample, letter) == (0, 100)


@settings(max_examples=60, deadline=None)
@given(index=st.integers(0, 10**6), seed=st.integers(0, 10**6))
def test_leaving_out_lowers_accuracy_only(index, seed):
    sample, text = sample_and_truth(index)
    phrases = text.removesuffix(".").split(", ")
    kept = random.Random(seed).sample(phrases, random.Random(seed).randrange(1, len(phrases) + 1))
    assert axes(sample, ", ".join(kept)) == (round(100 * len(kept) / len(phrases)), 0)


@settings(max_examples=60, deadline=None)
@given(index=st.integers(0, 10**6), seed=st.integers(0, 10**6))
def test_each_false_word_costs_one_fact_and_one_claim(index, seed):
    sample, text = sample_and_truth(index)
    rng = random.Random(seed)
    thing = rng.choice(scene("val", index).things)
    kind = rng.choice(("size", "colour", "pattern"))
    false = rng.choice([value for value in VALUES[kind] if value != getattr(thing, kind)])
    phrases = text.removesuffix(".").split(", ")
    number = next(i for i, phrase in enumerate(phrases) if thing.shape in phrase)
    phrases[number] = phrases[number].replace(f" {getattr(thing, kind)} ", f" {false} ")
    facts = len(ATTRIBUTES) * len(phrases)
    found = score(sample, ", ".join(phrases))
    assert found.accuracy == (200 * (facts - 1) + facts) // (2 * facts)
    assert found.hallucination == (200 + facts) // (2 * facts)
    assert [claim.text for claim in found.claims if not claim.right] == [false]


@settings(max_examples=150, deadline=None)
@given(index=st.integers(0, 999), words=st.lists(st.sampled_from([*WORDS, "\n", "Ä"]), max_size=40))
def test_any_text_gets_two_whole_numbers_and_spans_in_order(index, words):
    text = " ".join(words)
    sample = WorldSource("test", 1000)[index]
    found = score(sample, text)
    assert found == score(sample, text)
    assert 0 <= found.accuracy <= 100
    assert 0 <= found.hallucination <= 100
    ends = 0
    for claim in found.claims:
        assert claim.start >= ends
        assert text[claim.start : claim.end] == claim.text
        ends = claim.end
    if not found.claims:
        assert found.axes == {"accuracy": 0, "hallucination": 0}


def sample_and_truth(index):
    seen = scene("val", index)
    sample = Sample(
        id="s",
        image="",
        family="description",
        turns=(Turn(prompt=DESCRIBE[0]),),
        facts=seen.facts,
    )
    return sample, describe(seen)


def test_a_sample_without_facts_is_refused():
    with pytest.raises(DataError, match="no scene graph"):
        score(described(objects=[]), "red")


def test_the_rules_have_one_digest():
    assert rules_digest() == rules_digest()
    assert len(rules_digest()) == 64
