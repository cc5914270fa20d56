"""Tables of the analytical compute and of the interface's parameters."""

from collections.abc import Sequence

from paiq.analysis.compute import (
    GIGA,
    PREFIXES,
    ROUTES,
    decimals,
    fused_percent,
    fusion,
    parameters,
    proxy_flops,
    relative_percent,
)
from paiq.analysis.shapes import Backbone
from paiq.report.tables import Table, cells


def compute_table(backbones: Sequence[Backbone]) -> Table:
    rows = []
    for backbone in backbones:
        costs, shares = proxy_flops(backbone), relative_percent(backbone)
        rows.append(
            cells(
                backbone.name,
                f"{backbone.parameters:,}",
                *(decimals(costs[route], 1, GIGA) for route in ROUTES),
                *(decimals(shares[route], 0) for route in ROUTES),
            )
        )
    return Table(
        name="compute",
        caption="The paper's analytical coordinates: 2PT per image with 64 text tokens, "
        "vision towers and text tower only, fusion excluded; relative to DINOv3-only.",
        header=("Backbone", "Text tower P", *ROUTES, *ROUTES),
        groups=(("", 2), ("GFLOPs", 4), ("Relative, %", 4)),
        rows=tuple(rows),
    )


def fusion_table(backbones: Sequence[Backbone]) -> Table:
    rows = []
    for backbone in backbones:
        added = fusion(backbone.hidden)
        rows.append(
            cells(
                backbone.name,
                str(backbone.hidden),
                *(
                    decimals(part, 1, GIGA)
                    for part in (
                        added.content,
                        added.matching,
                        added.pairs,
                        added.residual,
                        added.cayley,
                        added.total,
                    )
                ),
                decimals(relative_percent(backbone)["PAIQ"], 1),
                decimals(fused_percent(backbone, cached=False), 1),
                decimals(fused_percent(backbone, cached=True), 1),
            )
        )
    return Table(
        name="fusion",
        caption="What the proxy leaves out: our own estimate of the dense fusion per image, in "
        "GFLOPs, and PAIQ's relative compute with it. Q is the same for every image after "
        "training; cached, it costs nothing per image.",
        header=(
            "Backbone",
            "d",
            "content",
            "matching",
            "pairs",
            "residual",
            "Cayley",
            "all",
            "proxy",
            "with fusion",
            "Q cached",
        ),
        groups=(("", 2), ("Fusion, GFLOPs (ours)", 6), ("PAIQ, % of DINOv3-only", 3)),
        rows=tuple(rows),
    )


def parameter_table(hidden_sizes: Sequence[int]) -> Table:
    rows = [
        cells(
            *(
                f"{value:,}"
                for value in (
                    hidden,
                    row.content,
                    row.matching,
                    row.rotation,
                    row.total,
                    row.rotation_freedom,
                )
            )
        )
        for hidden in hidden_sizes
        for row in [parameters(hidden)]
    ]
    return Table(
        name="parameters",
        caption="Trainable parameters of PAIQ from the layer shapes. The full stored W_Q is "
        "counted; only its skew-symmetric part acts.",
        header=("d", "Content maps", "Matching maps", "W_Q", "Total", "Skew freedom of W_Q"),
        rows=tuple(rows),
        text_columns=0,
    )


def prefix_table() -> Table:
    return Table(
        name="prefixes",
        caption="Visual tokens that the language model reads; concatenation would show it 772.",
        header=("Route", "Visual tokens"),
        rows=tuple(cells(route, PREFIXES[route]) for route in ROUTES),
    )
