"""The paper's counts: empty outputs, evaluator sources, slices, steps, parameters, compute."""

from decimal import Decimal
from math import ceil

from paiq.analysis.claims import Claim, as_read, check, ours
from paiq.analysis.compute import (
    GIGA,
    PREFIXES,
    SEMANTIC,
    SPATIAL,
    decimals,
    parameters,
    proxy_flops,
    relative_percent,
)
from paiq.analysis.published import read
from paiq.analysis.shapes import BACKBONES

COVERAGE, TRAINING, SIZES, COMPUTE = "Coverage", "Training", "Sizes", "Compute"


def count_claims() -> list[Claim]:
    return [*_empty(), *_sources(), *_slices(), *_training(), *_sizes(), *_compute()]


def _empty() -> list[Claim]:
    rows = [row for row in read("empty") if row["row"] == "score_pair"]
    counts = {
        (int(row["accuracy"]), int(row["hallucination"])): int(row["candidates"]) for row in rows
    }
    total = sum(counts.values())
    odd = total - counts[0, 0]
    # 71 question candidates, 52 of them off the (0, 0) rule; 259 description candidates.
    kept = 71 - 52
    off_description = 259 - (counts[0, 0] - kept)
    return [
        check("Empty outputs", "rows add up to", "330", str(total)),
        check("Empty outputs", "nonzero on some axis", "81", str(odd)),
        check("Empty outputs", "questions and descriptions", "330", str(71 + 259)),
        ours(
            "Empty outputs",
            "nonzero ones: questions and descriptions",
            f"52 + {off_description} = {52 + off_description}",
            f"{kept} question candidates received (0, 0), so {counts[0, 0] - kept} description "
            "candidates did; the counts close.",
        ),
    ]


def _sources() -> list[Claim]:
    axes: dict[str, dict[str, int]] = {}
    for row in read("provenance"):
        axes.setdefault(row["package"], {})[row["source"]] = int(row["axes"])
    four, two, both = (
        axes[name] for name in ("four_backbone_package", "dedicated_2b_package", "combined")
    )
    share = Decimal(100) * both["qwen_recovery"] / both["total"]
    closing = sum(
        package["total"] == package["gpt_4o"] + package["qwen_recovery"] + package["terminal"]
        for package in axes.values()
    )
    joined = sum(four[source] + two[source] == both[source] for source in both)
    return [
        check(
            COVERAGE,
            "axes: 4 backbones x 3 methods x 2 datasets x 1,000 x 2",
            f"{four['total']:,}",
            f"{4 * 3 * 2 * 1000 * 2:,}",
        ),
        check(
            COVERAGE,
            "axes of the 2B archive: 5 methods x 2 datasets x 1,000 x 2",
            f"{two['total']:,}",
            f"{5 * 2 * 1000 * 2:,}",
        ),
        check(COVERAGE, "rows that add up over evaluators", "3 of 3", f"{closing} of {len(axes)}"),
        check(COVERAGE, "columns that add up over packages", "4 of 4", f"{joined} of {len(both)}"),
        check(COVERAGE, "share of recovered axes", "0.3044 %", f"{share:.4f} %"),
        check(COVERAGE, "2B recoveries: Accuracy and Hallucination", "39", str(34 + 5)),
        check(COVERAGE, "2B complete groups: methods x datasets x axes", "20", str(5 * 2 * 2)),
        check(COVERAGE, "27B predictions: methods x datasets x 1,000", "12,000", f"{3 * 4000:,}"),
    ]


def _slices() -> list[Claim]:
    rows = [*range(500, 1145), *range(355)]
    rule = [(500 + i) % 1145 for i in range(1000)]
    length = f"{len(rows):,}" if rows == rule else f"{len(rows):,}, not (500 + i) mod 1145"
    return [
        check(
            "Slices",
            "A-OKVQA rows 500-1144, then 0-354",
            "1,000",
            length,
            "Equal to (500 + i) mod 1145.",
        )
    ]


def _training() -> list[Claim]:
    micro_batches = 200_000 // 4 // 8
    stepped, left = divmod(micro_batches, 4)
    return [
        as_read(
            TRAINING,
            "optimizer steps: 200,000 examples, 4 ranks x 8 x 4, two epochs",
            "3,126",
            f"{2 * ceil(micro_batches / 4):,}",
            f"The last {left} micro-batches of an epoch make a step of their own; without it "
            f"there are {2 * stepped:,}.",
        )
    ]


def _sizes() -> list[Claim]:
    parts = {"content_maps": "content", "matching_maps": "matching", "w_q": "rotation"}
    printed = list(read("params"))
    right = sum(
        int(row["parameters"])
        == getattr(parameters(int(row["d"])), parts.get(row["component"], row["component"]))
        for row in printed
    )
    return [
        check(SIZES, "cells of the parameter table", "12 of 12", f"{right} of {len(printed)}"),
        check(
            SIZES,
            "clustering comparator's projector, 1024 to 2048 to 2048 with biases",
            "6,295,552",
            f"{1024 * 2048 + 2048 + 2048 * 2048 + 2048:,}",
            "The figure for the 2B backbone.",
        ),
        check(
            SIZES,
            "tokens: grids, tower, concatenation, average, blocks",
            "196, 576, 201, 772, 386, 49",
            f"{(224 // 16) ** 2}, {(384 // 16) ** 2}, {196 + 1 + 4}, "
            f"{SPATIAL.patches + SEMANTIC.patches}, {PREFIXES['Average efficiency']}, {196 // 4}",
            f"The coordinates need {SEMANTIC.tokens} SigLIP tower tokens, one more than its "
            "patches, although SigLIP has no class token.",
        ),
    ]


def _compute() -> list[Claim]:
    rows = list(read("efficiency"))
    right = {"gflops": 0, "relative_compute_percent": 0}
    total = dict(right)
    for row in rows:
        shape, kind = BACKBONES[row["backbone"]], row["quantity"]
        if kind == "gflops":
            found = decimals(proxy_flops(shape)[row["method"]], 1, GIGA).replace(",", "")
        else:
            found = decimals(relative_percent(shape)[row["method"]], 0)
        total[kind] += 1
        right[kind] += found == row["value"]
    return [
        check(
            COMPUTE,
            "27B coordinates in GFLOPs",
            "4 of 4",
            f"{right['gflops']} of {total['gflops']}",
            f"P = {BACKBONES['Qwen3.5-27B'].parameters:,}, from the published shape.",
        ),
        check(
            COMPUTE,
            "relative percentages",
            "20 of 20",
            f"{right['relative_compute_percent']} of {total['relative_compute_percent']}",
            "With the full text tower: input embedding and output head included.",
        ),
    ]
