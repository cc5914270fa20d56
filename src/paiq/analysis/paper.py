"""Every claim of the paper about scores that its own tables can answer, recomputed from them."""

from collections import Counter
from collections.abc import Callable
from decimal import Decimal

from paiq.analysis.claims import (
    Claim,
    Verdict,
    as_read,
    check,
    hundredths,
    not_derivable,
    ours,
)
from paiq.analysis.paper_counts import count_claims
from paiq.analysis.published import (
    CLUSTERING,
    DATASETS,
    FIXED,
    OURS,
    SEMANTIC,
    SPATIAL,
    Delta,
    Interval,
    Place,
    Printed,
    better_encoder,
    dedicated_table,
    groups,
    main_table,
    paired_intervals,
    recomputed_delta,
    recomputed_marks,
    scaling_table,
    values,
)
from paiq.records import AXES, Axis

MAIN, SCALING, INTERVALS = "Main table", "Scaling table", "Paired intervals"
QWEN = ("Qwen3.5-2B", "Qwen3.5-9B")

NOTES = (
    "Against the single encoders PAIQ's Accuracy is higher in 19 of 20 settings and its "
    "Hallucination lower in all 20. A sentence that calls the first consistent and the second "
    "general has them the wrong way round.",
    "Against all methods PAIQ is best in no Llama-3.1-8B column; LLaVA-Mini and MERV lead there.",
    "The 27B models may write 512 tokens, the others 128: the scaling table is no controlled "
    "scaling curve, as the paper itself says.",
    "PAIQ and interpolation with Q fixed represent the same functions when the projections are "
    "free (the paper's equivalence lemma). The ablation's gain is therefore a result of "
    "optimisation within one budget and one seed, not of added capacity.",
    "Means are printed with two decimals; means of 1,000 integers have three. A difference of "
    "unrounded means may differ from the difference of printed cells by 0.01.",
    "Tables average records, not images: the slices hold 999, 1,000, 908 and 985 distinct images.",
    "The audited question packages cover 16 of the 31 backbone-method columns; the other 15 "
    "columns have no printed evaluator counts.",
    "The description templates are not printed. Description scores cannot be repeated exactly.",
    "The compute proxy leaves the fusion out; our estimate of it stands in its own table.",
    "The accuracy-compute figure shows four FLUX settings, the appendix archives five.",
)


def claims() -> list[Claim]:
    """All claims in the paper's order; each is recomputed at this call."""
    makers: tuple[Callable[[], list[Claim]], ...] = (
        _printed_marks,
        _strongest,
        _against_single_encoders,
        _other_claims,
        _intervals,
        _dedicated,
        _ablation,
        _own_counts,
        count_claims,
    )
    return [claim for make in makers for claim in make()]


def mismatches(table: dict[Place, Printed]) -> list[Place]:
    """Places whose printed arrow, size or colour is not what the two means give."""
    return [
        place
        for place, row in table.items()
        if row.delta is not None
        and Delta(arrow=row.arrow, size=row.delta, colour=row.colour)
        != recomputed_delta(table, place)
    ]


def _printed_marks() -> list[Claim]:
    found = []
    for topic, table in ((MAIN, main_table()), (SCALING, scaling_table())):
        baselines = [row for row in table.values() if row.delta is not None]
        right = len(baselines) - len(mismatches(table))
        found.append(
            check(
                topic,
                "differences from PAIQ with arrow and colour",
                f"{len(baselines)} of {len(baselines)}",
                f"{right} of {len(baselines)}",
            )
        )
        columns, given = groups(table), recomputed_marks(table)
        agreeing = sum(all(table[p].mark == given[p] for p in column) for column in columns)
        found.append(
            check(
                topic,
                "best and second-best marks by column",
                f"{len(columns)} of {len(columns)}",
                f"{agreeing} of {len(columns)}",
            )
        )
    shared = main_table().keys() & scaling_table().keys()
    same = sum(main_table()[p].value == scaling_table()[p].value for p in shared)
    text = f"{same} of {len(shared)}"
    return [*found, check(SCALING, "cells shared with the main table agree", "48 of 48", text)]


def _strongest() -> list[Claim]:
    table = main_table()
    leads = []
    for backbone in QWEN:
        for dataset in DATASETS:
            column = {
                p.method: row.value
                for p, row in table.items()
                if (p.backbone, p.dataset, p.axis) == (backbone, dataset, "accuracy")
            }
            mine = column.pop(OURS)
            leads.append(mine - max(column.values()))
    average = sum(leads) / len(leads)
    macro = _macro_leads()
    return [
        check(
            MAIN,
            "lead in Accuracy over the strongest competitor, both Qwen backbones",
            "1.11 to 4.78",
            f"{min(leads)} to {max(leads)}",
        ),
        as_read(
            MAIN,
            "the same on average",
            "about 2.9",
            f"about {average:.1f}",
            f"Mean {average} with the competitor picked anew in each cell. Against the best "
            f"single method by macro mean the leads are {macro}.",
        ),
    ]


def _macro_leads() -> str:
    parts = []
    for backbone in QWEN:
        means = _macro_means(backbone, "accuracy")
        mine = means.pop(OURS)
        other = max(means, key=means.__getitem__)
        parts.append(f"+{hundredths(mine - means[other])} ({other}, {backbone})")
    return " and ".join(parts)


def _macro_means(backbone: str, axis: Axis) -> dict[str, Decimal]:
    sums: dict[str, list[Decimal]] = {}
    for place, value in values().items():
        if (place.backbone, place.axis) == (backbone, axis):
            sums.setdefault(place.method, []).append(value)
    return {method: sum(found) / Decimal(len(found)) for method, found in sums.items()}


def _against_single_encoders() -> list[Claim]:
    wins: dict[Axis, list[str]] = {axis: [] for axis in AXES}
    lost: dict[Axis, list[str]] = {axis: [] for axis in AXES}
    for axis in AXES:
        for backbone, dataset in _settings():
            ahead = all(_favours(backbone, dataset, single, axis) for single in (SPATIAL, SEMANTIC))
            (wins if ahead else lost)[axis].append(f"{backbone} / {dataset}")
    total = len(_settings())
    exceptions = ", ".join(lost["accuracy"])
    return [
        check(
            MAIN,
            "settings with higher Accuracy than both single encoders",
            "19 of 20",
            f"{len(wins['accuracy'])} of {total}",
            f"The exception is {exceptions}." if exceptions else "",
        ),
        check(
            MAIN,
            "settings with lower Hallucination than both single encoders",
            "20 of 20",
            f"{len(wins['hallucination'])} of {total}",
        ),
    ]


def _settings() -> list[tuple[str, str]]:
    return list(dict.fromkeys((place.backbone, place.dataset) for place in values()))


def _favours(backbone: str, dataset: str, other: str, axis: Axis) -> bool:
    known = values()
    mine, theirs = (known[Place(backbone, dataset, m, axis)] for m in (OURS, other))
    return mine > theirs if axis == "accuracy" else mine < theirs


def _other_claims() -> list[Claim]:
    given = recomputed_marks(main_table())
    internvl = [
        d for d in DATASETS if given[Place("InternVL3.5-8B", d, OURS, "accuracy")] == "best"
    ]
    large = [
        _favours("Qwen3.5-27B", dataset, single, axis)
        for dataset in DATASETS
        for single in (SPATIAL, SEMANTIC)
        for axis in AXES
    ]
    return [
        check(
            MAIN,
            "InternVL tasks with the highest Accuracy",
            "3 of 4",
            f"{len(internvl)} of {len(DATASETS)}",
            ", ".join(internvl),
        ),
        check(
            SCALING,
            "27B comparisons with both single encoders that favour PAIQ",
            "16 of 16",
            f"{sum(large)} of {len(large)}",
        ),
    ]


def offsets() -> dict[Place, Decimal]:
    """How far each difference of printed means lies from its interval's middle, in half-widths."""
    return {
        interval.place: (_paired_mean(interval) - interval.middle) / interval.half_width
        for interval in paired_intervals()
    }


def _paired_mean(interval: Interval) -> Decimal:
    place, known = interval.place, values()
    other = better_encoder(place.backbone, place.dataset)
    gap = known[place] - known[Place(place.backbone, place.dataset, other, place.axis)]
    return gap if place.axis == "accuracy" else -gap


def _intervals() -> list[Claim]:
    found = paired_intervals()
    inside = sum(i.low <= _paired_mean(i) <= i.high for i in found)
    far = offsets()
    worst = max(far, key=lambda place: abs(far[place]))
    by_setting: dict[tuple[str, str], list[Interval]] = {}
    for interval in found:
        place = interval.place
        by_setting.setdefault((place.backbone, place.dataset), []).append(interval)
    both = [key for key, pair in by_setting.items() if all(i.favours for i in pair)]
    open_ones = [f"{b} / {d}" for b, d in by_setting if (b, d) not in both]
    return [
        check(
            INTERVALS,
            "settings whose intervals favour PAIQ on both axes",
            "18 of 20",
            f"{len(both)} of {len(by_setting)}",
            f"The others are {' and '.join(open_ones)}.",
        ),
        ours(
            INTERVALS,
            "differences of printed means that lie inside their interval",
            f"{inside} of {len(found)}",
            f"With the comparator that has the higher printed Accuracy. Farthest from the middle: "
            f"{abs(far[worst]):.3f} half-widths, {worst.backbone} / {worst.dataset} {worst.axis}.",
        ),
    ]


def _dedicated() -> list[Claim]:
    table, topic = dedicated_table(), "2B question archive"
    known = values()
    in_main = [i for i in table if i.place.method != FIXED]
    same = sum(
        known[
            Place(
                i.place.backbone,
                i.place.dataset,
                CLUSTERING.get(i.place.method, i.place.method),
                i.place.axis,
            )
        ]
        == i.mean
        for i in in_main
    )
    held = sum(i.mean is not None and i.low < i.mean < i.high for i in table)
    others = {i.place.method for i in table} - {OURS}
    datasets = {i.place.dataset for i in table}
    return [
        check(topic, "means equal the main table's", "16 of 16", f"{same} of {len(in_main)}"),
        ours(topic, "means that lie inside their interval", f"{held} of {len(table)}"),
        check(
            topic,
            "paired comparisons: comparators x datasets x axes",
            "16",
            str(len(others) * len(datasets) * len(AXES)),
        ),
        not_derivable(
            topic,
            "all of them favour PAIQ",
            "16 of 16",
            f"{_printed_paired_2b()} of 4 printed",
            "Paired intervals are printed for the DINOv3 comparator only; the other 12 are not.",
        ),
    ]


def _printed_paired_2b() -> int:
    return sum(
        i.favours
        for i in paired_intervals()
        if i.place.backbone == QWEN[0] and i.place.dataset in ("SEED", "A-OKVQA")
    )


def _ablation() -> list[Claim]:
    macro = _macro_means(QWEN[0], "accuracy")[OURS]
    fixed = {
        i.place.dataset: i.mean
        for i in dedicated_table()
        if i.place.method == FIXED and i.place.axis == "accuracy" and i.mean is not None
    }
    known = values()
    gains = ", ".join(
        f"{dataset} {known[Place(QWEN[0], dataset, OURS, 'accuracy')] - mean:+.2f}"
        for dataset, mean in fixed.items()
    )
    implied = 4 * (macro - Decimal("31.81")) - sum(fixed.values())
    return [
        not_derivable(
            "Ablation",
            "gain in macro Accuracy over fixed Q = I, 2B",
            "31.81",
            gains,
            "The means with fixed Q are printed for the two question sets alone. The claim implies "
            f"that FLUX and Caption sum to {hundredths(implied)} with fixed Q.",
        ),
        not_derivable(
            "Distributions",
            "pooled 2B responses with Accuracy of at least 80",
            "67.85 % of 4,000; under 21 % for either single encoder",
            f"{Decimal('67.85') * 40:.0f} of 4,000",
            "A whole number, as it must be. The single scores are not printed.",
        ),
    ]


def _own_counts() -> list[Claim]:
    found = []
    for backbone in dict.fromkeys(backbone for backbone, _ in _settings()):
        accuracy, hallucination = (_macro_means(backbone, axis)[OURS] for axis in AXES)
        found.append(
            ours(
                "Macro means",
                f"PAIQ, {backbone}: Accuracy / Hallucination",
                f"{hundredths(accuracy)} / {hundredths(hallucination)}",
            )
        )
    given, table = recomputed_marks(main_table()), main_table()
    for backbone in dict.fromkeys(place.backbone for place in table):
        best = Counter(
            p.axis
            for p, mark in given.items()
            if p.backbone == backbone and p.method == OURS and mark == "best"
        )
        red = sum(p.backbone == backbone and row.colour == "red" for p, row in table.items())
        found.append(
            ours(
                MAIN,
                f"{backbone}: columns where PAIQ is best (Accuracy / Hallucination), red cells",
                f"{best['accuracy']} / {best['hallucination']} of 4, {red} red",
            )
        )
    return found


def verdicts(found: list[Claim]) -> Counter[Verdict]:
    return Counter(claim.verdict for claim in found)
