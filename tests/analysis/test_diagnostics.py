import math

import pytest
import torch

from paiq.analysis.diagnostics import (
    answer_sensitivity,
    as_grid,
    concentration,
    relative_update,
)
from paiq.errors import ConfigError
from paiq.interfaces.paiq import Trace


def trace(base, tokens, allocation=None):
    n = base.shape[1]
    return Trace(
        base=base,
        source=torch.zeros(1, 2, base.shape[2]),
        allocation=torch.full((1, n, 2), 0.5) if allocation is None else allocation,
        aggregate=base,
        rotation=torch.eye(base.shape[2]),
        tokens=tokens,
        row_mass=torch.ones(1, n),
    )


def test_concentration_is_the_printed_sum():
    rows = torch.tensor([[[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.3, 0.1, 0.0]]])
    base = torch.zeros(1, 3, 2)
    stabilizer = 1e-6
    found = concentration(trace(base, base, rows), stabilizer)[0].tolist()
    for value, row in zip(found, rows[0].double().tolist(), strict=True):
        assert value == pytest.approx(-sum(p * math.log(p + stabilizer) for p in row), abs=1e-12)


def test_an_even_mixture_is_the_least_concentrated_and_one_source_the_most():
    even = torch.full((1, 1, 576), 1 / 576)
    lone = torch.zeros(1, 1, 576)
    lone[0, 0, 3] = 1.0
    base = torch.zeros(1, 1, 2)
    assert concentration(trace(base, base, even)).item() == pytest.approx(math.log(576), rel=1e-6)
    assert concentration(trace(base, base, lone)).item() == pytest.approx(0.0, abs=1e-9)


def test_a_stabilizer_that_is_not_positive_is_refused():
    base = torch.zeros(1, 1, 2)
    with pytest.raises(ConfigError, match="positive"):
        concentration(trace(base, base), 0.0)


def test_the_relative_update_is_a_ratio_of_norms_and_undefined_at_a_zero_base():
    base = torch.tensor([[[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]]])
    tokens = base + torch.tensor([[[0.0, 5.0], [1.0, 1.0], [0.0, 0.0]]])
    found = relative_update(trace(base, tokens))[0]
    assert found[0].item() == 1.0
    assert math.isnan(found[1].item())
    assert found[2].item() == 0.0


def test_a_rotation_does_not_change_the_relative_update():
    torch.manual_seed(0)
    base, residual = torch.randn(1, 4, 6), torch.randn(1, 4, 6)
    rotation = torch.linalg.qr(torch.randn(6, 6))[0]
    plain = relative_update(trace(base, base + 0.6 * residual))
    turned = relative_update(trace(base, base + 0.6 * residual @ rotation.T))
    torch.testing.assert_close(plain, turned, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("side", "block", "parts"), [(14, 2, 7), (7, 2, 4), (4, 4, 1)])
def test_a_part_is_charged_with_its_own_updates_alone(side, block, parts):
    # With a log-likelihood that adds up token entries, R(B) is the sum of the updates inside B.
    torch.manual_seed(1)
    base = torch.randn(2, side * side, 3)
    update = torch.randn(2, side * side, 3)
    found = answer_sensitivity(
        trace(base, base + update), lambda tokens: tokens.sum(dim=(1, 2)), block
    )
    assert found.shape == (2, parts, parts)
    grid = update.unflatten(1, (side, side)).sum(dim=3)
    for row in range(parts):
        for column in range(parts):
            part = grid[:, row * block : (row + 1) * block, column * block : (column + 1) * block]
            torch.testing.assert_close(
                found[:, row, column].float(), part.sum(dim=(1, 2)), atol=1e-3, rtol=1e-4
            )


def test_removal_that_helps_the_answer_is_negative():
    base, tokens = torch.zeros(1, 4, 1), torch.ones(1, 4, 1)
    found = answer_sensitivity(trace(base, tokens), lambda z: -z.sum(dim=(1, 2)), 1)
    assert (found == -1).all()


def test_positions_that_form_no_square_are_refused():
    with pytest.raises(ConfigError, match="no square grid"):
        as_grid(torch.zeros(1, 12))
    base = torch.zeros(1, 4, 1)
    with pytest.raises(ConfigError, match="block"):
        answer_sensitivity(trace(base, base), lambda z: z.sum(dim=(1, 2)), 3)
