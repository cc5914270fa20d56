"""The statements of the paper's method section and of its appendix on theory, one test each."""

import math

import numpy as np
import ot
import pytest
import torch

from paiq.interfaces import create
from paiq.interfaces.matching import LogForm, MatchingRule, cosines, read
from paiq.interfaces.rotation import Rotation

IDEAL = MatchingRule(clip=1e6, stabilizer=0.0)  # "without clipping and with delta = 0"
LAMBDA = 0.6
N, M, D = 14, 40, 24


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def adversarial(kind, tokens, seed):
    """Features made to strain the statement: collapsed, opposed, scaled apart, nearly zero."""
    features = randn(1, tokens, D, seed=seed)
    if kind == "collapsed":
        features = features[:, :1] + 1e-6 * features
    elif kind == "opposed":
        features[:, ::2] = features[:, :1]
        features[:, 1::2] = -features[:, :1]
    elif kind == "scales apart":
        features = features * torch.logspace(-6, 6, tokens, dtype=torch.float64)[None, :, None]
    elif kind == "nearly zero":
        features[:, :3] *= 1e-15
    return features


KINDS = ["random", "collapsed", "opposed", "scales apart", "nearly zero"]


@pytest.fixture(params=KINDS)
def pair(request):
    return adversarial(request.param, N, 1), adversarial(request.param, M, 2)


def logits(pair, rule=IDEAL):
    return -(1 - cosines(*pair)).clamp(min=0) / rule.temperature


def coupled(K, rule):
    alpha, beta = LogForm.factors(K, rule)
    return (K + alpha.unsqueeze(2) + beta.unsqueeze(1)).clamp(max=0).exp()


def rotation_of(width=D, size=1.0, seed=4):
    rotation = Rotation(width).double()
    with torch.no_grad():
        rotation.weight.copy_(size * randn(width, width, seed=seed))
    return rotation.matrix()


def aggregated(pair):
    """Base, aggregate, allocation and source as the interface forms them."""
    base, source = pair
    reading = read(cosines(base, source), source, MatchingRule())
    return base, reading.aggregate, reading.allocation, source


# Matching (sec. 3.2, app. A.1)


def test_costs_lie_between_zero_and_two(pair):
    C = (1 - cosines(*pair)).clamp(min=0)
    assert C.min() >= 0
    assert C.max() <= 2 + 1e-12


@pytest.mark.parametrize("iterations", [1, 5, 30])
def test_columns_sum_to_one_before_clipping(pair, iterations):
    rule = MatchingRule(clip=1e6, iterations=iterations)
    T = coupled(logits(pair), rule)
    torch.testing.assert_close(T.sum(1), torch.ones(1, M).double(), rtol=1e-10, atol=1e-10)
    assert math.isclose(T.sum().item(), M, rel_tol=1e-10)  # the row masses add up to m


def test_rows_sum_to_their_mass_over_mass_and_stabilizer(pair):
    rule = MatchingRule(stabilizer=1e-2)
    got = read(cosines(*pair), pair[1], rule)
    q = got.row_mass
    torch.testing.assert_close(got.allocation.sum(2), q / (q + 1e-2), rtol=1e-10, atol=1e-12)
    assert (got.allocation.sum(2) < 1).all()
    normalised = got.allocation / got.allocation.sum(2, keepdim=True)
    eta = (q / (q + 1e-2)).unsqueeze(2)
    torch.testing.assert_close(got.aggregate, eta * (normalised @ pair[1]))  # eq. row_mass


def test_the_ideal_allocation_is_a_softmax_with_a_source_bias(pair):
    K = logits(pair)
    _, beta = LogForm.factors(K, IDEAL)
    got = read(cosines(*pair), pair[1], IDEAL).allocation
    torch.testing.assert_close(got, (K + beta.unsqueeze(1)).softmax(2), rtol=1e-9, atol=1e-12)


def test_row_factors_cancel_and_still_shape_the_source_bias():
    K = logits((randn(1, N, D), randn(1, M, D, seed=1)))
    changed = K.clone()
    changed[:, 0] += 1.5  # a logit shift of one query cancels in its own row ...
    for shifted in (K, changed):
        alpha, beta = LogForm.factors(shifted, IDEAL)
        T = (shifted + alpha.unsqueeze(2) + beta.unsqueeze(1)).exp()
        torch.testing.assert_close(T / T.sum(2, True), (shifted + beta.unsqueeze(1)).softmax(2))
    sharper = K.clone()
    sharper[:, 0, 0] += 5.0  # ... while a sharper query moves what the others read
    before = (K + LogForm.factors(K, IDEAL)[1].unsqueeze(1)).softmax(2)
    after = (sharper + LogForm.factors(sharper, IDEAL)[1].unsqueeze(1)).softmax(2)
    assert (before[:, 1:] - after[:, 1:]).abs().max() > 1e-3


def test_without_iterations_the_rows_are_independent():
    base, source = randn(1, N, D), randn(1, M, D, seed=1)
    rule = MatchingRule(iterations=0, stabilizer=0.0)
    together = read(cosines(base, source), source, rule).allocation
    for row in range(N):
        alone = read(cosines(base[:, row : row + 1], source), source, rule).allocation
        torch.testing.assert_close(alone[0, 0], together[0, row])
    torch.testing.assert_close(together, logits((base, source)).softmax(2))


def test_matching_ignores_the_length_of_queries_and_keys():
    base, source = randn(1, N, D), randn(1, M, D, seed=1)
    lengths = torch.rand(1, N, 1, dtype=torch.float64) + 0.1
    left = read(cosines(base * lengths, 7 * source), source, MatchingRule())
    torch.testing.assert_close(
        left.allocation, read(cosines(base, source), source, MatchingRule()).allocation
    )


def test_the_order_of_the_source_does_not_matter_and_that_of_the_base_is_kept(pair):
    base, source = pair
    rule = MatchingRule()
    expected = read(cosines(base, source), source, rule)
    shuffled = torch.randperm(M, generator=torch.Generator().manual_seed(0))
    got = read(cosines(base, source[:, shuffled]), source[:, shuffled], rule)
    torch.testing.assert_close(got.aggregate, expected.aggregate, rtol=1e-9, atol=1e-10)
    moved = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    got = read(cosines(base[:, moved], source), source, rule)
    torch.testing.assert_close(got.aggregate, expected.aggregate[:, moved], rtol=1e-9, atol=1e-10)


def test_a_rotation_of_both_streams_leaves_the_allocation():
    base, source, Q = randn(1, N, D), randn(1, M, D, seed=1), rotation_of()
    expected = read(cosines(base, source), source, MatchingRule()).allocation
    got = read(cosines(base @ Q.mT, source @ Q.mT), source, MatchingRule()).allocation
    torch.testing.assert_close(got, expected)


def test_unit_and_uniform_marginals_give_the_same_coefficients_after_every_iteration(pair):
    kernel = logits(pair)[0].exp()
    unit, uniform = kernel.clone(), kernel.clone()
    for _ in range(5):
        unit = unit / unit.sum(1, keepdim=True)
        unit = unit / unit.sum(0, keepdim=True)
        uniform = uniform / uniform.sum(1, keepdim=True) / N
        uniform = uniform / uniform.sum(0, keepdim=True) / M
        torch.testing.assert_close(uniform, unit / M, rtol=1e-9, atol=1e-14)
    conditional = uniform / uniform.sum(1, keepdim=True)
    got = read(cosines(*pair), pair[1], IDEAL).allocation[0]
    torch.testing.assert_close(got, conditional, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("seed", [0, 1])
def test_many_iterations_reach_the_entropic_transport_with_uniform_marginals(seed):
    base, source = randn(1, N, D, seed=seed), randn(1, M, D, seed=seed + 10)
    C = (1 - cosines(base, source)).clamp(min=0)[0].numpy()
    plan = ot.sinkhorn(
        np.full(N, 1 / N), np.full(M, 1 / M), C, 0.05, "sinkhorn_log", numItermax=20_000,
        stopThr=1e-13,
    )  # fmt: skip
    converged = MatchingRule(iterations=3000, clip=1e6, stabilizer=0.0)
    got = read(cosines(base, source), source, converged).allocation[0]
    torch.testing.assert_close(got, N * torch.from_numpy(plan), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(got.sum(1), torch.ones(N).double())  # eq. ideal_marginals
    torch.testing.assert_close(got.sum(0), torch.full((M,), N / M).double())


def test_five_clipped_iterations_need_not_balance_the_source():
    base, source = randn(1, N, 2), randn(1, M, 2, seed=1)
    got = read(cosines(base, source), source, MatchingRule()).allocation[0]
    assert (got.sum(0) - N / M).abs().max() > 1e-3


def test_the_unit_updates_drift_and_cancel():
    """Both sides aim at unit sums of a rectangular matrix: alpha falls by log(m/n) each time."""
    K = logits((randn(1, N, D), randn(1, M, D, seed=1)))
    many = MatchingRule(iterations=400, clip=1e6)
    more = MatchingRule(iterations=401, clip=1e6)
    (alpha, beta), (later, column) = LogForm.factors(K, many), LogForm.factors(K, more)
    step = torch.full_like(alpha, -math.log(M / N))
    torch.testing.assert_close(later - alpha, step, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(column - beta, -step[:, :1].expand_as(beta), rtol=1e-6, atol=1e-8)


# Rotation (sec. 3.3, app. A.2)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 50.0])
def test_the_cayley_transform_is_a_rotation(size):
    Q = rotation_of(size=size)
    eye = torch.eye(D, dtype=torch.float64)
    torch.testing.assert_close(Q.mT @ Q, eye, rtol=0, atol=1e-9)
    assert math.isclose(torch.linalg.det(Q).item(), 1.0, rel_tol=1e-8)


def test_the_two_factors_commute_and_the_solved_matrix_is_never_singular():
    W = 30 * randn(D, D)
    half = (W - W.mT) / 2
    eye = torch.eye(D, dtype=torch.float64)
    torch.testing.assert_close((eye - half) @ (eye + half), (eye + half) @ (eye - half))
    assert torch.linalg.svdvals(eye - half).min() >= 1 - 1e-9  # eq. cayley_invertible


def test_a_zero_weight_is_the_identity_and_the_transform_is_odd_around_it():
    assert torch.equal(rotation_of(size=0.0), torch.eye(D, dtype=torch.float64))
    rotation = Rotation(D).double()
    with torch.no_grad():
        rotation.weight.copy_(randn(D, D))
        Q = rotation.matrix()
        rotation.weight.neg_()
    torch.testing.assert_close(rotation.matrix(), Q.mT)


def test_only_the_skew_part_of_the_weight_matters():
    rotation = Rotation(D).double()
    with torch.no_grad():
        rotation.weight.copy_(randn(D, D))
        Q = rotation.matrix()
        rotation.weight.add_(randn(D, D, seed=8) + randn(D, D, seed=8).mT)
    torch.testing.assert_close(rotation.matrix(), Q)


def test_updates_have_the_gram_matrix_norms_and_angles_of_the_residuals(pair):
    base, aggregate, _, _ = aggregated(pair)
    R = (aggregate - base)[0]
    Delta = LAMBDA * R @ rotation_of().mT
    scale = R.norm() ** 2
    gram = LAMBDA**2 * R @ R.mT
    assert (Delta @ Delta.mT - gram).abs().max() < 1e-10 * scale  # eq. gram_proof
    torch.testing.assert_close(Delta.norm(dim=1), LAMBDA * R.norm(dim=1))
    pairs = torch.cdist(Delta, Delta, compute_mode="donot_use_mm_for_euclid_dist")
    expected = LAMBDA * torch.cdist(R, R, compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(pairs, expected, rtol=1e-7, atol=1e-9 * float(scale) ** 0.5)


def test_the_output_norm_has_the_cross_term(pair):
    base, aggregate, _, _ = (value[0] for value in aggregated(pair))
    R, Q = aggregate - base, rotation_of()
    Z = base + LAMBDA * R @ Q.mT
    cross = 2 * LAMBDA * (base * (R @ Q.mT)).sum(1)
    expected = base.norm(dim=1) ** 2 + LAMBDA**2 * R.norm(dim=1) ** 2 + cross
    torch.testing.assert_close(Z.norm(dim=1) ** 2, expected, rtol=1e-8, atol=1e-9)


# Separation (lemma separation, app. A.3)


def differences(values):
    first, second = torch.triu_indices(N, N, offset=1)
    return values[first] - values[second]


@pytest.mark.parametrize("size", [0.0, 0.1, 1.0, 20.0])
@pytest.mark.parametrize("scale", [0.05, 0.5, 0.6, 0.95])
def test_the_bounds_of_the_lemma_and_of_its_refinement_hold(pair, size, scale):
    base, aggregate, Pi, source = (value[0] for value in aggregated(pair))
    Q = rotation_of(size=size)
    Z = base + scale * (aggregate - base) @ Q.mT
    x, e, z = (differences(value) for value in (base, aggregate, Z))
    distance, spread, shift = z.norm(dim=1), x.norm(dim=1), e.norm(dim=1)
    slack = 1e-9 * (1 + base.norm() + aggregate.norm())
    lower = ((1 - scale) * spread - scale * shift).clamp(min=0)
    assert (distance >= lower - slack).all()  # eq. pair_lower
    assert (distance <= (1 + scale) * spread + scale * shift + slack).all()  # eq. pair_bound
    turned = ((x - x @ Q.mT).norm(dim=1) ** 2 * scale + ((1 - scale) * spread) ** 2).sqrt()
    aware = (turned - scale * shift).clamp(min=0)
    assert (distance >= aware - slack).all()  # eq. rotation_aware_bound
    assert (aware >= lower - slack).all()  # never weaker
    reach = source.norm(dim=1).max() * differences(Pi).abs().sum(1)
    assert (shift <= reach + slack).all()  # eq. weight_to_feature
    by_weights = ((1 - scale) * spread - scale * reach).clamp(min=0)
    assert (distance >= by_weights - slack).all()  # eq. matching_separation


@pytest.mark.parametrize("size", [0.0, 0.3, 5.0])
def test_with_a_shared_aggregate_the_distance_decomposes_exactly(size):
    base, Q = randn(N, D), rotation_of(size=size)
    shared = randn(1, D, seed=7).expand(N, D)
    Z = base + LAMBDA * (shared - base) @ Q.mT
    x = differences(base)
    direct = (1 - LAMBDA) ** 2 * x.norm(dim=1) ** 2
    turned = LAMBDA * (x - x @ Q.mT).norm(dim=1) ** 2
    torch.testing.assert_close(differences(Z).norm(dim=1) ** 2, direct + turned)
    assert (turned > 0).all() == (size > 0)
    ratio = differences(Z).norm(dim=1) / x.norm(dim=1)
    assert ratio.min() >= 1 - LAMBDA - 1e-12  # eq. shared_semantics
    assert ratio.max() <= 1 + LAMBDA + 1e-12


def test_small_aggregate_differences_keep_base_features_apart():
    kappa = 0.9 * (1 - LAMBDA) / LAMBDA
    x, Q = randn(200, D), rotation_of()
    e = randn(200, D, seed=3)
    e = e / e.norm(dim=1, keepdim=True) * kappa * x.norm(dim=1, keepdim=True)
    z = x - LAMBDA * x @ Q.mT + LAMBDA * e @ Q.mT
    bound = (1 - LAMBDA - LAMBDA * kappa) * x.norm(dim=1)
    assert (z.norm(dim=1) >= bound - 1e-12).all()
    assert (bound > 0).all()


def test_aggregates_that_differ_enough_can_still_cancel():
    x, Q = randn(1, D), rotation_of()
    e = -(x - LAMBDA * x @ Q.mT) @ Q / LAMBDA
    assert (x - LAMBDA * x @ Q.mT + LAMBDA * e @ Q.mT).norm() < 1e-12


def test_an_unconstrained_map_can_erase_every_base_difference():
    base, shared = randn(N, D), randn(1, D, seed=7).expand(N, D)
    G = torch.eye(D, dtype=torch.float64) / LAMBDA
    Z = base + LAMBDA * (shared - base) @ G.mT  # eq. unconstrained_example
    torch.testing.assert_close(Z, shared)
    kept = base + LAMBDA * (shared - base) @ rotation_of().mT
    assert differences(kept).norm(dim=1).min() > 0.39 * differences(base).norm(dim=1).min()


# The interface as a whole (sec. 3.3, app. A.4)


def test_at_initialisation_the_tokens_are_the_stated_mixture():
    torch.manual_seed(0)
    interface = create("paiq", hidden_size=32).double()
    spatial, semantic = randn(1, 196, 1024), randn(1, 576, 1024, seed=1)
    trace = interface.trace(spatial, semantic)
    torch.testing.assert_close(trace.tokens, 0.4 * trace.base + 0.6 * trace.aggregate)
    expected = cosines(trace.base, trace.source)  # W_d = W_s = I
    allocation = read(expected, trace.source, MatchingRule()).allocation
    torch.testing.assert_close(trace.allocation, allocation)


def test_the_relative_update_has_two_equal_forms():
    torch.manual_seed(0)
    interface = create("paiq", hidden_size=16, spatial_size=8, semantic_size=8,
                       spatial_tokens=N, semantic_tokens=M).double()  # fmt: skip
    with torch.no_grad():
        interface.rotation.weight.copy_(randn(16, 16))
    trace = interface.trace(randn(1, N, 8), randn(1, M, 8, seed=1))
    lengths = trace.base.norm(dim=2)
    left = (trace.tokens - trace.base).norm(dim=2) / lengths
    right = LAMBDA * (trace.aggregate - trace.base).norm(dim=2) / lengths
    torch.testing.assert_close(left, right)  # eq. rho


def test_paiq_and_direct_interpolation_are_one_class_of_functions():
    """Both directions of lemma equivalence: folding, and W_Q = 0."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "spatial_size": 8, "semantic_size": 12,
             "spatial_tokens": N, "semantic_tokens": M}  # fmt: skip
    interface = create("paiq", **sizes).double()
    with torch.no_grad():
        for parameter in interface.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    features = randn(2, N, 8), randn(2, M, 12, seed=1)
    direct = interface.as_direct_interpolation()
    torch.testing.assert_close(
        direct(*features).tokens, interface(*features).tokens, rtol=1e-10, atol=1e-10
    )
    back = create("paiq", **sizes).double()
    back.load_state_dict(direct.state_dict() | {"rotation.weight": torch.zeros(16, 16)})
    torch.testing.assert_close(back(*features).tokens, direct(*features).tokens)
