"""Made-up results of the demo's shape; every number comes from a seeded generator."""

import io

import numpy as np
from PIL import Image, ImageDraw

from paiq.report.demo_results import (
    ClaimSpan,
    DemoAnswer,
    DemoCard,
    DemoCurve,
    DemoMaps,
    DemoMethod,
    DemoProbe,
    DemoResults,
    DemoScores,
)

LEVELS = {"paiq": 71, "pai": 64, "spatial": 48, "semantic": 55, "concat": 70}
SPLITS = {"held-out": 0, "shifted": -6}


def scores(level: float, method: str, split: str, family: str, seed: int = 0, count: int = 120):
    random = np.random.default_rng([seed, len(split), int(level * 10), len(family)])
    accuracy = np.clip(np.round(random.normal(level, 18, count)), 0, 100).astype(int)
    hallucination = np.clip(100 - accuracy + random.integers(-4, 5, count), 0, 100)
    return DemoScores(
        method=method,
        split=split,
        family=family,
        seed=seed,
        sample_ids=tuple(f"{split}-{family}-{index:04d}" for index in range(count)),
        accuracy=tuple(int(value) for value in accuracy),
        hallucination=tuple(int(value) for value in hallucination),
    )


def picture_png(seed: int = 0, size: int = 192) -> bytes:
    random = np.random.default_rng(seed)
    image = Image.new("RGB", (size, size), (226, 221, 210))
    draw = ImageDraw.Draw(image)
    for _ in range(3):
        x, y = random.integers(size // 16, size // 2, 2)
        colour = tuple(int(value) for value in random.integers(40, 220, 3))
        draw.ellipse([x, y, x + size // 3, y + size // 3], fill=colour)
    out = io.BytesIO()
    image.save(out, format="PNG")
    return out.getvalue()


def answer(method: str, text: str, wrong: str = "") -> DemoAnswer:
    claims = []
    for phrase in text.rstrip(".").split(" and "):
        start = text.index(phrase)
        claims.append(ClaimSpan(start=start, end=start + len(phrase), right=phrase != wrong))
    right = sum(claim.right for claim in claims)
    score = 100 * right // max(1, len(claims))
    return DemoAnswer(
        method=method,
        text=text,
        accuracy=score,
        hallucination=100 - score,
        claims=tuple(claims) if text else (),
    )


def maps(seed: int = 0) -> DemoMaps:
    random = np.random.default_rng(seed)
    across, down = np.meshgrid(np.arange(12), np.arange(12))
    blobs = {
        (2, 2): np.exp(-((across - 4) ** 2 + (down - 4) ** 2) / 6),
        (5, 4): np.exp(-((across - 8) ** 2 + (down - 9) ** 2) / 5),
    }
    update = 0.4 + random.random((7, 7))
    update[0, 0] = np.nan
    return DemoMaps(
        allocation={place: blob / blob.sum() for place, blob in blobs.items()},
        concentration=1.5 + random.random((7, 7)),
        update=update,
    )


def card(index: int, *, with_maps: bool = False) -> DemoCard:
    right = "a large red star with stripes at the left and a small blue ring above it"
    wrong = "a small blue ring above it"
    return DemoCard(
        sample_id=f"held-out-description-{index:04d}",
        split="held-out" if index % 2 == 0 else "shifted",
        family="description" if index % 3 else "vqa",
        image_png=picture_png(index),
        prompt="Describe the picture."
        if index % 3
        else "Which colour is the star?\nA. red\nB. blue",
        reference="a large red striped star, left; a small blue dotted ring, top",
        answers=tuple(
            DemoAnswer(method=method, text="", accuracy=0, hallucination=0)
            if method == "spatial"
            else answer(method, right + ".", wrong if method != "paiq" else "")
            for method in LEVELS
        ),
        maps=maps(index) if with_maps else None,
    )


def demo_results(*, seeds: int = 1, cards: int = 4) -> DemoResults:
    random = np.random.default_rng(7)
    return DemoResults(
        methods=tuple(
            DemoMethod(name=name, tokens=49 if name != "concat" else 193, parameters=123_456)
            for name in LEVELS
        ),
        scores=tuple(
            scores(level + drop - 10 * (family == "vqa"), name, split, family, seed)
            for name, level in LEVELS.items()
            for split, drop in SPLITS.items()
            for family in ("description", "vqa")
            for seed in range(seeds)
        ),
        ceilings=tuple(
            scores(94, "ceiling", "held-out", family) for family in ("description", "vqa")
        ),
        curves=tuple(
            DemoCurve(
                method=name,
                seed=seed,
                steps=tuple(range(1, 301)),
                losses=tuple(
                    2.5 * np.exp(-step / 60) + (100 - level) / 60 + random.normal(0, 0.05)
                    for step in range(300)
                ),
            )
            for name, level in LEVELS.items()
            for seed in range(seeds)
        ),
        probes=(
            DemoProbe(attribute="pattern", spatial=0.93, semantic=0.41, chance=0.25),
            DemoProbe(attribute="category", spatial=0.52, semantic=0.94, chance=0.125),
        ),
        cards=tuple(card(index, with_maps=index < 2) for index in range(cards)),
        recipe={"optimiser": "AdamW, 3e-3, cosine", "steps": "300", "batch": "32"},
        versions={"paiq": "0.1.0", "torch": "2.13"},
        seconds=231.4,
        device="2 CPU cores",
    )
