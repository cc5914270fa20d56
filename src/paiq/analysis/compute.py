"""Analytical compute: the paper's 2PT coordinates, and what they leave out.

cost = 2 P_tower T_tower + 2 P_language (visual prefix + text budget)
(paper, Analytical Compute Accounting)

The fusion estimate is ours: the paper's proxy excludes it.
"""

from dataclasses import dataclass
from fractions import Fraction

from paiq.analysis.shapes import Backbone

GIGA = 10**9


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A vision tower in the proxy: the rounded size and the tokens it processes."""

    parameters: int
    tokens: int
    """Special tokens included."""
    patches: int
    """What it hands on."""
    width: int = 1024

    @property
    def flops(self) -> int:
        return 2 * self.parameters * self.tokens


SPATIAL = Tower(parameters=303_000_000, tokens=201, patches=196)
SEMANTIC = Tower(parameters=316_000_000, tokens=577, patches=576)
TEXT_BUDGET = 64
ROUTES = ("DINOv3-only", "SigLIP-only", "Average efficiency", "PAIQ")
PREFIXES = dict(
    zip(
        ROUTES,
        (
            SPATIAL.patches,
            SEMANTIC.patches,
            (SPATIAL.patches + SEMANTIC.patches) // 2,
            SPATIAL.patches,
        ),
        strict=True,
    )
)


def proxy_flops(backbone: Backbone) -> dict[str, int]:
    """The paper's four coordinates, in FLOPs, by route."""
    towers = SPATIAL.flops + SEMANTIC.flops
    short = _language(backbone, SPATIAL.patches)
    long = _language(backbone, SEMANTIC.patches)
    assert (short + long) % 2 == 0
    costs = (SPATIAL.flops + short, SEMANTIC.flops + long, towers + (short + long) // 2)
    return dict(zip(ROUTES, (*costs, towers + short), strict=True))


def relative_percent(backbone: Backbone) -> dict[str, Fraction]:
    """The same, in exact percent of the spatial route."""
    costs = proxy_flops(backbone)
    return {route: Fraction(100 * cost, costs[ROUTES[0]]) for route, cost in costs.items()}


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """Dense FLOPs of the fusion for one image, by part; our estimate, outside the paper's proxy."""

    content: int
    matching: int
    pairs: int
    """Pairwise scores and value aggregation."""
    residual: int
    cayley: Fraction
    """Solving for Q; the same for every image once training is over."""

    @property
    def total(self) -> Fraction:
        return self.with_cached_rotation + self.cayley

    @property
    def with_cached_rotation(self) -> Fraction:
        return Fraction(self.content + self.matching + self.pairs + self.residual)


def fusion(hidden: int) -> Fusion:
    """2 (n + m) c d + 2 (n + m) d^2 + 4 n m d + 2 n d^2 + (8/3) d^3."""
    n, m = SPATIAL.patches, SEMANTIC.patches
    return Fusion(
        content=2 * (n * SPATIAL.width + m * SEMANTIC.width) * hidden,
        matching=2 * (n + m) * hidden**2,
        pairs=4 * n * m * hidden,
        residual=2 * n * hidden**2,
        cayley=Fraction(8, 3) * hidden**3,
    )


def fused_percent(backbone: Backbone, *, cached: bool) -> Fraction:
    """PAIQ's coordinate with the fusion counted, in percent of the spatial route without it."""
    costs, added = proxy_flops(backbone), fusion(backbone.hidden)
    extra = added.with_cached_rotation if cached else added.total
    return 100 * (costs["PAIQ"] + extra) / costs[ROUTES[0]]


@dataclass(frozen=True, kw_only=True)
class ParameterRow:
    """Stored trainable parameters of PAIQ at one hidden size, by part."""

    hidden: int
    content: int
    matching: int
    rotation: int

    @property
    def total(self) -> int:
        return self.content + self.matching + self.rotation

    @property
    def rotation_freedom(self) -> int:
        """Skew-symmetric degrees of freedom behind the stored rotation matrix."""
        return self.hidden * (self.hidden - 1) // 2


def parameters(hidden: int) -> ParameterRow:
    """N = 2 (1024 d + d) + 3 d^2, eq. parameter_count."""
    return ParameterRow(
        hidden=hidden,
        content=(SPATIAL.width + SEMANTIC.width + 2) * hidden,
        matching=2 * hidden**2,
        rotation=hidden**2,
    )


def decimals(value: int | Fraction, places: int, unit: int = 1) -> str:
    """The value in the unit, rounded half up on exact arithmetic, as tables print it."""
    scaled = Fraction(value) * 10**places / unit
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    head, tail = divmod(whole, 10**places)
    return f"{head:,}.{tail:0{places}d}" if places else f"{head:,}"


def _language(backbone: Backbone, prefix: int) -> int:
    return 2 * backbone.parameters * (prefix + TEXT_BUDGET)
