"""PAIQ's speed and memory: folded for inference, and its training step.

Every number stands beside references on the same inputs in the same run: the paper's execution,
LLaVA's projector on the tokens of both streams, POT, PyTorch's Cayley parametrization, and the
rate of plain products on this machine.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from torch import Tensor

from paiq.bench.figures import MISSING, drawn
from paiq.bench.outcome import Outcome
from paiq.bench.references import (
    TwoLayers,
    papers_matching,
    papers_path,
    pots_matching,
    torch_rotation,
)
from paiq.bench.tables import Row, folded_operations, report_of
from paiq.bench.timing import (
    Call,
    Timing,
    captured,
    device_named,
    machine,
    peak_memory,
    product_rate,
    side_by_side,
    tensor_float32,
)
from paiq.interfaces import Sizes
from paiq.interfaces.matching import MatchingRule, cosines, read
from paiq.interfaces.paiq import Paiq, PaiqOptions
from paiq.interfaces.plan import PLAIN
from paiq.interfaces.rotation import Rotation
from paiq.progress import Report, silent


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `paiq bench interfaces` measures; the defaults are the paper's sizes."""

    hidden_sizes: tuple[int, ...] = (2048, 4096, 5120)
    """Widths of the language model."""
    batches: tuple[int, ...] = (1, 8)
    """Images per call, inference."""
    training_batches: tuple[int, ...] = (8,)
    """Images per step."""
    channels: int = 1024
    """Channels of both streams."""
    spatial_tokens: int = 196
    semantic_tokens: int = 576
    seconds: float = 15.0
    """About how long each group of contenders takes turns."""
    device: str | None = None
    """`cpu` or `cuda`; CUDA where there is one."""
    growth: bool = True
    """Also how the cost grows with n, m and d."""

    @property
    def steps(self) -> int:
        """How many pieces of work are reported."""
        per_width = len(self.batches) + len(self.training_batches) + 1
        return 2 + len(self.hidden_sizes) * per_width + (len(list(growth_points(self))))


QUICK = Settings(
    hidden_sizes=(96,),
    batches=(1, 2),
    training_batches=(2,),
    channels=48,
    spatial_tokens=16,
    semantic_tokens=36,
    seconds=0.05,
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One interface with its inputs, and how it is timed."""

    interface: Paiq
    spatial: Tensor
    semantic: Tensor
    precision: str
    seconds: float

    @property
    def device(self) -> torch.device:
        return self.spatial.device

    def row(self, part: str, contender: str, timing: Timing) -> Row:
        return Row(
            part=part,
            hidden_size=self.interface.sizes.hidden_size,
            batch=len(self.spatial),
            precision=self.precision,
            contender=contender,
            timing=timing,
        )

    def rows(self, part: str, calls: dict[str, Call]) -> list[Row]:
        timings = side_by_side(calls, self.device, self.seconds)
        return [self.row(part, name, timing) for name, timing in timings.items()]


def run(settings: Settings, report: Report = silent) -> Outcome:
    device = device_named(settings.device)
    widest = max(settings.hidden_sizes)
    rates: dict[str, float] = {}
    rows: list[Row] = []
    done = 0
    for precision in precisions(device):
        with tensor_float32(precision == "TF32"):
            rates[precision] = product_rate(device, torch.float32, widest)
            for part, work in parts(settings, device, precision):
                report(done, f"{part}, {precision}")
                rows += work()
                done += precision == "float32"
    figures = drawn(rows)
    about = machine(device) | {"products_per_second": rates}
    report(settings.steps)
    return Outcome(
        name=f"interfaces-{device.type}",
        table=report_of(rows, about, settings) + ("" if figures else "\n" + MISSING),
        numbers={
            "machine": about,
            "settings": asdict(settings),
            "rows": [asdict(row) for row in rows],
        },
        figures=figures,
    )


def precisions(device: torch.device) -> tuple[str, ...]:
    return ("float32", "TF32") if device.type == "cuda" else ("float32",)


def parts(
    settings: Settings, device: torch.device, precision: str
) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """The pieces of work by name, smallest first."""
    make = partial(case_of, settings, device, precision)
    first, most = settings.hidden_sizes[0], max(settings.batches)
    yield "matching alone", lambda: matching(make(first, most))
    for d in settings.hidden_sizes:
        for batch in settings.batches:
            yield f"inference d={d} images={batch}", partial(_made, inference, make, d, batch)
        for batch in settings.training_batches:
            yield f"training d={d} images={batch}", partial(_made, training, make, d, batch)
        yield f"rotation d={d}", partial(_made, rotation, make, d, most)
    if precision == "float32":
        for axis, sizes in growth_points(settings):
            yield f"growth with {axis}", partial(growth, settings, device, axis, sizes)


def _made(
    work: Callable[[Case], list[Row]], make: Callable[[int, int], Case], d: int, batch: int
) -> list[Row]:
    return work(make(d, batch))


def case_of(
    settings: Settings, device: torch.device, precision: str, hidden_size: int, batch: int
) -> Case:
    sizes = Sizes(
        hidden_size=hidden_size,
        spatial_size=settings.channels,
        semantic_size=settings.channels,
        spatial_tokens=settings.spatial_tokens,
        semantic_tokens=settings.semantic_tokens,
    )
    return sized_case(sizes, device, precision, batch, settings.seconds)


def sized_case(
    sizes: Sizes, device: torch.device, precision: str, batch: int, seconds: float
) -> Case:
    generator = torch.Generator().manual_seed(0)
    interface = Paiq(sizes, PaiqOptions())
    with torch.no_grad():  # away from the start, where maps are the identity
        for layer in (interface.query, interface.key, interface.rotation):
            noise = torch.randn(layer.weight.shape, generator=generator)
            layer.weight.add_(noise, alpha=0.3 / sizes.hidden_size**0.5)
    spatial = torch.randn(batch, sizes.spatial_tokens, sizes.spatial_size, generator=generator)
    semantic = torch.randn(batch, sizes.semantic_tokens, sizes.semantic_size, generator=generator)
    return Case(
        interface=interface.to(device),
        spatial=spatial.to(device),
        semantic=semantic.to(device),
        precision=precision,
        seconds=seconds,
    )


@torch.no_grad()
def inference(case: Case) -> list[Row]:
    interface = case.interface.eval()
    folded, given = interface.fold(), (case.spatial, case.semantic)
    projector = TwoLayers(case.spatial.shape[2], interface.sizes.hidden_size).to(case.device)
    both = torch.cat(given, dim=1)
    calls: dict[str, Call] = {
        "paper": lambda: papers_path(interface, *given),
        "unfolded": lambda: interface(*given),
        "folded": lambda: folded(*given),
        "mlp": lambda: projector(both),
    }
    if case.device.type == "cuda":
        calls["folded graph"] = captured(lambda: folded(*given).tokens)
    rows = case.rows("inference", calls)
    floor = folded_operations(interface.sizes, len(case.spatial))
    expected = papers_path(interface, *given)
    error = float((folded(*given).tokens - expected).norm() / expected.norm())
    return [
        replace(row, error=error, operations=floor) if row.contender == "folded" else row
        for row in rows
    ]


def training(case: Case) -> list[Row]:
    """Forward and backward of the interface alone; each step sees a weight it has not seen."""
    interface, given = case.interface.train(), (case.spatial, case.semantic)
    towards = torch.randn_like(interface(*given).tokens)
    projector = TwoLayers(case.spatial.shape[2], interface.sizes.hidden_size).to(case.device)
    both = torch.cat(given, dim=1)
    wide = torch.randn(*both.shape[:2], towards.shape[2], device=case.device)

    def paper() -> None:
        interface.zero_grad()
        papers_path(interface, *given).backward(towards)

    def paiq() -> None:
        interface.zero_grad()
        with torch.no_grad():
            interface.rotation.weight.mul_(1.0)  # as an optimiser step would: factors are stale
        interface(*given).tokens.backward(towards)

    def mlp() -> None:
        projector.zero_grad()
        projector(both).backward(wide)

    calls: dict[str, Call] = {"paper": paper, "paiq": paiq, "mlp": mlp}
    rows = case.rows("training", calls)
    memory = {name: peak_memory(call, case.device) / 2**20 for name, call in calls.items()}
    paiq()
    errors = {"paiq": gradient_error(case, towards)}
    return [
        replace(row, mib=memory[row.contender], error=errors.get(row.contender)) for row in rows
    ]


def gradient_error(case: Case, towards: Tensor) -> float:
    """The largest relative error of a parameter's gradient against float64, plain plan."""
    double = Paiq(case.interface.sizes, case.interface.options).to(case.device, torch.float64)
    double.load_state_dict(case.interface.state_dict())
    tokens = double.tokens(case.spatial.double(), case.semantic.double(), PLAIN)
    tokens.backward(towards.double())
    pairs = zip(case.interface.parameters(), double.parameters(), strict=True)
    errors = []
    for parameter, exact in pairs:
        assert parameter.grad is not None
        assert exact.grad is not None
        errors.append(float((parameter.grad - exact.grad).norm() / exact.grad.norm()))
    return max(errors)


@torch.no_grad()
def matching(case: Case) -> list[Row]:
    """The coupled normalisation, from cosines to weights; one channel is aggregated with it."""
    rule = MatchingRule()
    similarity, one = cosines(case.spatial, case.semantic), case.semantic[:, :, :1]
    calls: dict[str, Call] = {
        "paper": lambda: [papers_matching(*image, rule) for image in zip(
            similarity, one, strict=True)],
        "paiq": lambda: read(similarity, one, rule),
    }  # fmt: skip
    pot = pots_matching(similarity, rule)
    if pot is not None:
        calls["pot"] = pot
    return case.rows("matching", calls)


def rotation(case: Case) -> list[Row]:
    """Residual rows of all images rotated, forward and backward, weight new each time."""
    d = case.interface.sizes.hidden_size
    rows = torch.randn(case.spatial.shape[0] * case.spatial.shape[1], d, device=case.device)
    ours, theirs = Rotation(d).to(case.device), torch_rotation(d).to(case.device)

    def paiq() -> None:
        with torch.no_grad():
            ours.weight.mul_(1.0)
        ours(rows.mT).mT.backward(rows)

    def torchs() -> None:
        theirs(rows).backward(rows)

    return case.rows("rotation", {"torch": torchs, "paiq": paiq})


def growth_points(settings: Settings) -> Iterator[tuple[str, dict[str, int]]]:
    """One size varied by powers of two around the middle, the others kept."""
    if not settings.growth:
        return
    middle = {
        "spatial_tokens": settings.spatial_tokens,
        "semantic_tokens": settings.semantic_tokens,
        "hidden_size": min(settings.hidden_sizes),
    }
    factors = {
        "spatial_tokens": (0.25, 0.5, 1, 2, 4),
        "semantic_tokens": (0.25, 0.5, 1, 2, 4),
        "hidden_size": (0.25, 0.5, 1, 2),
    }
    for axis, values in factors.items():
        for factor in values:
            yield axis, middle | {axis: int(middle[axis] * factor)}


@torch.no_grad()
def growth(
    settings: Settings, device: torch.device, axis: str, varied: dict[str, int]
) -> list[Row]:
    sizes = Sizes(spatial_size=settings.channels, semantic_size=settings.channels, **varied)
    case = sized_case(sizes, device, "float32", 1, settings.seconds / 10)
    interface, given = case.interface.eval(), (case.spatial, case.semantic)
    folded = interface.fold()
    calls: dict[str, Call] = {
        "paper": lambda: papers_path(interface, *given),
        "folded": lambda: folded(*given),
    }
    return [replace(row, varied=axis, at=varied[axis]) for row in case.rows("growth", calls)]
