"""Both forms of the matching against the printed equations, values and gradients."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from interfaces.oracle import allocate_slowly, cosines_slowly
from paiq.errors import ConfigError
from paiq.interfaces.matching import (
    ExpForm,
    LogForm,
    MatchingRule,
    cosines,
    exponentials_are_safe,
    read,
)

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5}
FORMS = {"log": LogForm, "exp": ExpForm}
PAPER = MatchingRule()
TIGHT = MatchingRule(clip=2.0)  # both clips bind
LOOSE = MatchingRule(clip=0.5, temperature=0.4)
RULES = {
    "paper": PAPER,
    "tight": TIGHT,
    "loose": LOOSE,
    "no iterations": MatchingRule(iterations=0),
    "one iteration": MatchingRule(iterations=1),
    "strong stabilizer": MatchingRule(stabilizer=0.3),
    "warm": MatchingRule(temperature=1.0),
}


def similarities(kind, rows=5, columns=8):
    rng = torch.Generator().manual_seed(3)
    if kind == "random":
        return 2 * torch.rand(rows, columns, generator=rng, dtype=torch.float64) - 1
    if kind == "opposed":  # one base token unlike every source, one source unlike every base
        result = 1 - 0.05 * torch.rand(rows, columns, generator=rng, dtype=torch.float64)
        result[0], result[:, 1] = -1.0, -0.98
        return result
    if kind == "above one":  # what rounding can make of a cosine
        result = 2 * torch.rand(rows, columns, generator=rng, dtype=torch.float64) - 1
        result[1, 2], result[3, 3] = 1 + 1e-3, 1 + 1e-7
        return result
    return torch.full((rows, columns), 0.7, dtype=torch.float64)


def slowly(similarity, rule):
    return allocate_slowly(similarity, **vars(rule))


@pytest.mark.parametrize("kind", ["random", "opposed", "above one", "equal"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_form_gives_the_printed_allocation(kind, rule, form, dtype):
    similarity = similarities(kind)
    Pi, mass, _, _ = slowly(similarity.to(dtype).double(), rule)
    features = torch.randn(1, 8, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    got = form.read(similarity[None].to(dtype), features, rule)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(got.allocation[0].double(), Pi, **close)
    torch.testing.assert_close(got.row_mass[0].double(), mass, **close)
    torch.testing.assert_close(got.coverage[0].double(), Pi.sum(1), **close)
    torch.testing.assert_close(got.aggregate[0].double(), Pi @ features[0].double(), **close)


def test_both_clips_bind_in_the_rules_that_are_to_test_them():
    for rule in (TIGHT, LOOSE):
        _, _, alpha, beta = slowly(similarities("opposed"), rule)
        assert (alpha.abs() == rule.clip).any()
        assert (beta.abs() == rule.clip).any()


@pytest.mark.parametrize("kind", ["random", "opposed", "above one", "equal"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_min_can_only_bind_by_rounding(kind, rule):
    """A free column factor makes T at most one; a held one has K + alpha - clip <= 0."""
    similarity = similarities(kind)
    _, _, alpha, beta = slowly(similarity, rule)
    K = -(1 - similarity).clamp(min=0) / rule.temperature
    assert (K + alpha[:, None] + beta[None, :]).max() <= 1e-12


def test_the_min_holds_what_rounding_lifts_above_one():
    similarity = 1 - 0.2 * torch.rand(1, 1, 300, generator=torch.Generator().manual_seed(0))
    rule = MatchingRule(iterations=1)
    similarity.requires_grad_()  # one base token: every column has the single entry one
    E = ExpForm.kernel(similarity, rule.temperature)
    rows, columns = ExpForm.factors(E, rule)
    assert (ExpForm.couple(E, rows, columns[-1]) > 1).any()
    got = read(similarity, torch.eye(300)[None], rule)
    assert got.row_mass.item() <= 300
    (gradient,) = torch.autograd.grad(got.aggregate[0, 0, 7], similarity)
    assert gradient.abs().max() < 1e-6  # every entry is one, whatever the cosines


@pytest.mark.parametrize("kind", ["random", "opposed"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_both_forms_have_the_same_gradients(kind, rule):
    rng = torch.Generator().manual_seed(5)
    features = torch.randn(2, 8, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    to_aggregate = torch.randn(2, 5, 3, generator=rng, dtype=torch.float64)
    to_coverage = torch.randn(2, 5, generator=rng, dtype=torch.float64)
    other = 2 * torch.rand(5, 8, generator=rng, dtype=torch.float64) - 1
    found = []
    for form in FORMS.values():
        similarity = torch.stack([similarities(kind), other]).requires_grad_()
        got = form.read(similarity, features, rule)
        loss = (got.aggregate * to_aggregate).sum() + (got.coverage * to_coverage).sum()
        found.append(torch.autograd.grad(loss, [similarity, features]))
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_written_backward_passes_gradcheck(rule):
    similarity = similarities("random")[None].requires_grad_()
    features = torch.randn(1, 8, 2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda *a: ExpForm.read(*a, rule)[:2], (similarity, features))


def test_cosines_are_the_printed_ones_and_pass_gradcheck():
    rng = torch.Generator().manual_seed(0)
    queries = torch.randn(1, 4, 6, generator=rng, dtype=torch.float64)
    keys = torch.randn(1, 5, 6, generator=rng, dtype=torch.float64)
    queries[0, 1] *= 1e8
    keys[0, 2] *= 1e-7
    expected = cosines_slowly(queries[0], keys[0]).double()
    torch.testing.assert_close(cosines(queries, keys)[0], expected, rtol=1e-6, atol=1e-7)
    queries, keys = torch.randn(2, 1, 4, 6, dtype=torch.float64)
    assert gradcheck(cosines, (queries.requires_grad_(), keys.requires_grad_()))


@pytest.mark.parametrize("length", [0.0, 1e-20, 3e-13])
def test_a_near_zero_vector_is_divided_by_the_floor_and_keeps_finite_gradients(length):
    keys = torch.randn(1, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    direction = torch.ones(6, dtype=torch.float64) / math.sqrt(6)
    queries = (length * direction).view(1, 1, 6).requires_grad_()
    got = cosines(queries, keys)
    expected = (length / 1e-12) * (torch.nn.functional.normalize(keys, dim=2) @ direction)
    torch.testing.assert_close(got[:, 0], expected)
    (gradient,) = torch.autograd.grad(got.sum(), queries)
    torch.testing.assert_close(
        gradient[0, 0], torch.nn.functional.normalize(keys, dim=2)[0].sum(0) / 1e-12
    )


def test_the_form_is_chosen_by_the_bound():
    shape = torch.Size([1, 196, 576])
    assert exponentials_are_safe(PAPER, shape, torch.float32)
    assert not exponentials_are_safe(MatchingRule(temperature=0.02), shape, torch.float32)
    assert exponentials_are_safe(MatchingRule(temperature=0.02), shape, torch.float64)
    assert not exponentials_are_safe(MatchingRule(clip=50.0), shape, torch.float32)


def test_a_small_temperature_stays_exact_in_float32():
    rule = MatchingRule(temperature=0.005)
    similarity = similarities("opposed").float()
    Pi, *_ = slowly(similarity.double(), rule)
    got = read(similarity[None], torch.eye(8)[None], rule)
    torch.testing.assert_close(got.aggregate[0].double(), Pi, rtol=1e-3, atol=1e-5)


def test_the_worst_logits_stay_inside_float32():
    similarity = torch.full((1, 196, 576), -1.0)
    similarity[0, 0, 0] = 1.0
    similarity[0, 1:, 5] = 1.0
    similarity.requires_grad_()
    got = read(similarity, torch.randn(1, 576, 4), PAPER)
    (gradient,) = torch.autograd.grad(got.aggregate.sum(), similarity)
    assert gradient.isfinite().all()
    reference = LogForm.read(similarity.detach().double(), torch.eye(576).double()[None], PAPER)
    torch.testing.assert_close(got.allocation.double(), reference.allocation, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_outer_autocast_does_not_reach_the_matching(dtype):
    queries, keys = torch.randn(1, 6, 16), torch.randn(1, 9, 16)
    features = torch.randn(1, 9, 4)
    plain = read(cosines(queries, keys), features, PAPER)
    with torch.autocast("cpu", dtype=dtype):
        inside = read(cosines(queries, keys), features, PAPER)
    assert inside.aggregate.dtype == torch.float32
    assert torch.equal(inside.aggregate, plain.aggregate)


def test_float64_stays_float64_and_lower_precision_is_raised():
    for given, expected in {torch.float64: torch.float64, torch.bfloat16: torch.float32}.items():
        queries, keys = torch.randn(1, 6, 16, dtype=given), torch.randn(1, 9, 16, dtype=given)
        got = read(cosines(queries, keys), torch.randn(1, 9, 4, dtype=given), PAPER)
        assert got.aggregate.dtype == got.allocation.dtype == expected


def test_second_order_gradients_are_refused_in_words():
    similarity = similarities("random")[None].requires_grad_()
    got = read(similarity, torch.randn(1, 8, 2, dtype=torch.float64), PAPER)
    with pytest.raises(ConfigError, match="first order only"):
        torch.autograd.grad(got.aggregate.sum(), similarity, create_graph=True)


class MatricesAlive(TorchDispatchMode):
    """Counts floating storages of at least that many numbers that live at the same time."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers, self.seen, self.most = numbers, {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in [*args, *(result if isinstance(result, tuple) else [result])]:
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                storage = value.untyped_storage()
                if storage.nbytes() >= self.numbers * value.element_size():
                    self.seen[storage.data_ptr()] = torch.multiprocessing.reductions.StorageWeakRef(
                        storage
                    )
        self.seen = {key: ref for key, ref in self.seen.items() if not ref.expired()}
        self.most = max(self.most, len(self.seen))
        return result


def test_the_backward_keeps_three_matrices_alive():
    batch, n, m = 2, 48, 96
    similarity = torch.rand(batch, n, m, requires_grad=True)
    got = read(similarity * 1, torch.randn(batch, m, 4), PAPER)
    loss = got.aggregate.sum()
    del got
    with MatricesAlive(batch * n * m) as alive:
        loss.backward()
    assert alive.most <= 3


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0.0}, {"clip": -1.0}, {"iterations": -1}, {"stabilizer": float("nan")}],
)
def test_constants_without_meaning_are_refused(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        MatchingRule(**settings)
