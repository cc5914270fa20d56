"""PAIQ end to end: every plan, precision and check, against one slow float64 path."""

import copy

import pytest
import torch
import torch.utils.checkpoint

from interfaces.oracle import allocate_slowly, cosines_slowly
from paiq.errors import ConfigError, DataError
from paiq.interfaces import create
from paiq.interfaces.features import Sizes
from paiq.interfaces.plan import PLAIN, Plan, cheapest

SIZES = {
    "hidden_size": 20,
    "spatial_size": 12,
    "semantic_size": 10,
    "spatial_tokens": 6,
    "semantic_tokens": 9,
}
PLANS = {
    "plain": PLAIN,
    "queries": Plan(compose_queries=True),
    "keys": Plan(compose_keys=True),
    "both": Plan(compose_queries=True, compose_keys=True),
    "weights": Plan(compose_queries=True, compose_keys=True, rotate_weights=True),
}


def interface_of(name="paiq", *, dtype=torch.float64, **settings):
    torch.manual_seed(1)
    interface = create(name, **(SIZES | settings)).to(dtype)
    with torch.no_grad():
        for parameter in interface.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return interface


def features_of(batch=2, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    spatial = torch.randn(batch, 6, 12, generator=generator, dtype=torch.float64)
    semantic = torch.randn(batch, 9, 10, generator=generator, dtype=torch.float64)
    return spatial.to(dtype), semantic.to(dtype)


def tokens_slowly(interface, spatial, semantic):
    """Sec. 3 in float64: one image at a time, an explicit inverse, the loop in plain Python."""
    weights = {name: w.detach().double() for name, w in interface.state_dict().items()}
    eye = torch.eye(len(weights["query.weight"]), dtype=torch.float64)
    A = torch.zeros_like(eye)
    if "rotation.weight" in weights:
        A = weights["rotation.weight"] - weights["rotation.weight"].mT
    Q = torch.linalg.inv(eye - A / 2) @ (eye + A / 2)
    found = []
    for X, Y in zip(spatial.double(), semantic.double(), strict=True):
        D = X @ weights["spatial_projection.weight"].mT + weights["spatial_projection.bias"]
        S = Y @ weights["semantic_projection.weight"].mT + weights["semantic_projection.bias"]
        queries, keys = D @ weights["query.weight"].mT, S @ weights["key.weight"].mT
        Pi, *_ = allocate_slowly(cosines_slowly(queries, keys).double())
        found.append(D + interface.options.scale * (Pi @ S - D) @ Q.mT)
    return torch.stack(found)


@pytest.mark.parametrize("name", ["paiq", "pai"])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_plan_gives_the_printed_tokens(name, plan):
    interface = interface_of(name)
    spatial, semantic = features_of()
    expected = tokens_slowly(interface, spatial, semantic)
    got = interface.tokens(spatial, semantic, plan)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)  # cosines_slowly is float32
    reference = interface.trace(spatial, semantic).tokens
    torch.testing.assert_close(got, reference, rtol=1e-11, atol=1e-12)


def gradients(interface, spatial, semantic, plan):
    generator = torch.Generator().manual_seed(9)
    tokens = interface.tokens(spatial, semantic, plan)
    towards = torch.randn(tokens.shape, generator=generator, dtype=torch.float64)
    loss = (tokens * towards.to(tokens.dtype)).sum()
    return torch.autograd.grad(loss, list(interface.parameters()))


@pytest.mark.parametrize("name", ["paiq", "pai"])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_plan_has_the_gradients_of_the_plain_one(name, plan):
    spatial, semantic = features_of()
    double = interface_of(name)
    expected = gradients(double, spatial, semantic, PLAIN)
    for left, right in zip(gradients(double, spatial, semantic, plan), expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-10)
    single = interface_of(name).float()
    single.load_state_dict(double.state_dict())
    got = gradients(single, spatial.float(), semantic.float(), plan)
    for left, right in zip(got, expected, strict=True):
        assert (left.double() - right).norm() <= 1e-5 * right.norm()


def test_the_plain_plan_passes_gradcheck_from_features_to_tokens():
    interface = create("paiq", hidden_size=4, spatial_size=3, semantic_size=2,
                       spatial_tokens=2, semantic_tokens=3).double()  # fmt: skip
    torch.manual_seed(0)
    weights = {n: (0.4 * torch.randn_like(p)).requires_grad_() for n, p in
               interface.named_parameters()}  # fmt: skip
    spatial, semantic = torch.randn(1, 2, 3).double(), torch.randn(1, 3, 2).double()

    def tokens(spatial, semantic, *values):
        named = dict(zip(weights, values, strict=True))
        return torch.func.functional_call(interface, named, (spatial, semantic)).tokens

    given = (spatial.requires_grad_(), semantic.requires_grad_(), *weights.values())
    assert torch.autograd.gradcheck(tokens, given)


def test_the_plan_follows_the_arithmetic():
    paper = Sizes(hidden_size=4096)
    assert cheapest(paper, 1, rotates=True) == PLAIN
    eight = cheapest(paper, 8, rotates=True)
    assert eight.compose_keys
    assert not eight.rotate_weights
    assert cheapest(paper, 32, rotates=True).rotate_weights
    assert not cheapest(paper, 32, rotates=False).rotate_weights
    tiny = Sizes(hidden_size=64, spatial_size=32, semantic_size=32,
                 spatial_tokens=16, semantic_tokens=16)  # fmt: skip
    assert cheapest(tiny, 32, rotates=True).compose_keys


def test_micro_batches_add_up_to_the_batch():
    interface = interface_of()
    spatial, semantic = features_of(batch=4)
    whole = gradients(interface, spatial, semantic, PLANS["weights"])
    interface.tokens(spatial[:1], semantic[:1], PLAIN)
    generator = torch.Generator().manual_seed(9)
    towards = torch.randn(4, 6, 20, generator=generator, dtype=torch.float64)
    for part in range(4):
        tokens = interface(spatial[part : part + 1], semantic[part : part + 1]).tokens
        (tokens * towards[part]).sum().backward()
    for parameter, expected in zip(interface.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_only_the_matching_maps_follow_an_outer_autocast(plan):
    interface = interface_of(dtype=torch.float32)
    spatial, semantic = features_of(dtype=torch.float32)
    exact = interface.tokens(spatial, semantic, plan)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = interface.tokens(spatial, semantic, plan)
    assert inside.dtype == torch.float32
    assert not torch.equal(inside, exact)
    torch.testing.assert_close(inside, exact, rtol=0, atol=0.1)
    # With one source token nothing is left to match: all that remains must be float32.
    alone = interface_of(dtype=torch.float32, semantic_tokens=1)
    one = semantic[:, :1]
    expected = alone.tokens(spatial, one, plan)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(alone.tokens(spatial, one, plan), expected)


@pytest.mark.parametrize("given", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32])
def test_the_result_has_the_dtype_of_the_features(given, weights):
    interface = interface_of(dtype=weights)
    spatial, semantic = features_of(dtype=given)
    tokens = interface(spatial, semantic).tokens
    assert tokens.dtype == given
    expected = tokens_slowly(interface, spatial, semantic)
    tolerance = 2e-2 if given == torch.bfloat16 else 1e-5
    torch.testing.assert_close(tokens.double(), expected, rtol=tolerance, atol=tolerance)


def test_the_trace_holds_the_forward_tensors_and_they_fit_each_other():
    interface = interface_of().eval()
    spatial, semantic = features_of()
    trace = interface.trace(spatial, semantic)
    torch.testing.assert_close(trace.allocation @ trace.source, trace.aggregate)
    residual = trace.aggregate - trace.base
    Z = trace.base + interface.options.scale * residual @ trace.rotation.mT
    torch.testing.assert_close(trace.tokens, Z)
    torch.testing.assert_close(trace.allocation.sum(2), trace.row_mass / (trace.row_mass + 1e-6))
    assert trace.orthogonality_error < 1e-12
    assert set(trace.named()) == {
        "tokens", "base", "source", "allocation", "aggregate", "rotation", "row_mass",
        "orthogonality_error",
    }  # fmt: skip


def test_an_untrained_interface_mixes_base_and_aggregate():
    interface = create("paiq", **SIZES).double()
    trace = interface.trace(*features_of())
    torch.testing.assert_close(trace.tokens, 0.4 * trace.base + 0.6 * trace.aggregate)
    assert torch.equal(trace.rotation, torch.eye(20).double())


@pytest.mark.parametrize("stream", ["spatial", "semantic"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_no_number_is_named_with_its_place(stream, value):
    interface = interface_of().eval()
    spatial, semantic = features_of()
    bad = {"spatial": spatial, "semantic": semantic}
    bad[stream][1, 4, 7] = value
    with pytest.raises(DataError, match=f"{stream} features .* image 1, token 4, channel 7"):
        interface(**bad)
    interface.train()(**bad)  # off in training
    interface.check_finite = True
    with pytest.raises(DataError, match=stream):
        interface(**bad)


def test_huge_but_finite_features_are_not_refused():
    interface = interface_of().eval()
    spatial, semantic = features_of()
    spatial[0, 0, :2] = 1e308
    interface.check_features(spatial, semantic)


@pytest.mark.parametrize("scale", [0.0, 1.0, -0.5])
def test_a_scale_outside_the_open_interval_is_refused(scale):
    with pytest.raises(ConfigError, match="scale must lie in"):
        create("paiq", hidden_size=8, scale=scale)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_gives_the_same_gradients(reentrant):
    interface = interface_of()
    spatial, semantic = features_of()
    spatial.requires_grad_()

    def tokens():
        run = torch.utils.checkpoint.checkpoint
        return run(lambda *given: interface(*given).tokens, spatial, semantic,
                   use_reentrant=reentrant)  # fmt: skip

    inputs = [spatial, *interface.parameters()]
    expected = torch.autograd.grad(interface(spatial, semantic).tokens.square().sum(), inputs)
    tokens().square().sum().backward()
    for value, gradient in zip(inputs, expected, strict=True):
        torch.testing.assert_close(value.grad, gradient)


def test_a_copied_interface_is_independent_of_the_first():
    interface = interface_of()
    features = features_of()
    before = interface(*features).tokens
    copied = copy.deepcopy(interface)
    with torch.no_grad():
        copied.rotation.weight.add_(1)
    assert torch.equal(interface(*features).tokens, before)
    assert not torch.equal(copied(*features).tokens, before)
