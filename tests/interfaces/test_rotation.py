"""The Cayley rotation: right, factorised once, and never stale."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from paiq.errors import ConfigError
from paiq.interfaces.rotation import (
    Dense,
    Factors,
    Rotation,
    UnpivotedFactors,
    dense_is_cheaper,
    system,
)


def rotation_of(width, *, size=0.3, dtype=torch.float64, seed=0):
    rotation = Rotation(width).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        rotation.weight.copy_(size * torch.randn(width, width, generator=generator))
    return rotation


def printed(weight):
    """Q of eq. cayley, with an inverse."""
    A = weight - weight.mT
    eye = torch.eye(len(A), dtype=A.dtype)
    return torch.linalg.inv(eye - A / 2) @ (eye + A / 2)


@pytest.fixture
def factorisations(monkeypatch):
    calls = []
    real = torch.linalg.lu_factor
    monkeypatch.setattr(torch.linalg, "lu_factor", lambda M: calls.append(1) or real(M))
    return calls


@pytest.mark.parametrize("columns", [0, 1, 5, 200])
@pytest.mark.parametrize("size", [0.0, 0.01, 3.0])
def test_solve_and_matrix_give_the_printed_rotation(columns, size):
    rotation = rotation_of(12, size=size)
    given = torch.randn(12, columns, dtype=torch.float64)
    Q = printed(rotation.weight.detach())
    torch.testing.assert_close(rotation(given), Q @ given, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(rotation.matrix(), Q, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("columns", [3, 40])
def test_both_ways_have_the_gradients_of_the_printed_equation(columns):
    rotation = rotation_of(7)
    assert dense_is_cheaper(7, columns) == (columns == 40)
    given = torch.randn(7, columns, dtype=torch.float64, requires_grad=True)
    towards = torch.randn(7, columns, dtype=torch.float64)
    got = torch.autograd.grad((rotation(given) * towards).sum(), [rotation.weight, given])
    weight = rotation.weight.detach().clone().requires_grad_()
    expected = torch.autograd.grad((printed(weight) @ given * towards).sum(), [weight, given])
    for left, right in zip(got, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-11)


def test_the_written_backward_passes_gradcheck():
    rotation = rotation_of(5)
    given = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)

    def rotated(weight, columns):
        changed = Rotation(5).double()
        del changed.weight
        changed.weight = weight
        return changed(columns)

    assert gradcheck(rotated, (rotation.weight.detach().requires_grad_(), given))


def test_the_solve_is_cheaper_for_few_columns_and_the_matrix_for_many():
    assert not dense_is_cheaper(4096, 196)
    assert not dense_is_cheaper(4096, 4096)
    assert dense_is_cheaper(256, 1568)


@pytest.mark.parametrize("training", [True, False])
def test_one_factorisation_serves_all_calls_until_the_weight_changes(factorisations, training):
    rotation = rotation_of(6).train(training)
    for _ in range(4):
        rotation(torch.randn(6, 3, dtype=torch.float64)).sum().backward()
    rotation.matrix()
    assert len(factorisations) == 1
    torch.optim.SGD([rotation.weight], lr=0.1).step()
    rotation(torch.randn(6, 3, dtype=torch.float64))
    assert len(factorisations) == 2


def in_place(rotation):
    with torch.no_grad():
        rotation.weight.add_(0.1 * torch.randn(6, 6))


def through_data(rotation):
    rotation.weight.data.mul_(1.5)


def swap_two_rows_through_data(rotation):
    rotation.weight.data.copy_(rotation.weight.data[[1, 0, 2, 3, 4, 5]])


def load(rotation):
    rotation.load_state_dict({"weight": torch.randn(6, 6)})


def load_by_assignment(rotation):
    rotation.load_state_dict({"weight": torch.randn(6, 6)}, assign=True)


def new_parameter(rotation):
    rotation.weight = nn.Parameter(torch.randn(6, 6))


def adam(rotation):
    rotation.weight.grad = torch.randn_like(rotation.weight)
    torch.optim.Adam([rotation.weight], lr=0.1).step()


def there_and_back(rotation):
    rotation.double()
    rotation.weight.data.mul_(2)
    rotation.float()


def to_double(rotation):
    rotation.double()


def by_vector(rotation):
    nn.utils.vector_to_parameters(torch.randn(36), rotation.parameters())


CHANGES = [
    in_place,
    through_data,
    swap_two_rows_through_data,
    load,
    load_by_assignment,
    new_parameter,
    adam,
    there_and_back,
    to_double,
    by_vector,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("columns", [3, 40])
def test_no_change_of_the_weight_is_missed(change, columns):
    rotation = rotation_of(6, dtype=torch.float32).eval()
    given = torch.randn(6, columns)
    rotation(given)
    change(rotation)
    expected = printed(rotation.weight.detach().double()) @ given.double()
    torch.testing.assert_close(rotation(given).double(), expected, rtol=1e-4, atol=1e-5)
    dtype = rotation.weight.dtype
    assert rotation(given).dtype == dtype


def test_the_precision_of_the_call_is_part_of_the_cache():
    rotation = rotation_of(6, dtype=torch.float32)
    given = torch.randn(6, 3, dtype=torch.float64)
    rotation(given.float())
    expected = printed(rotation.weight.detach().double()) @ given
    torch.testing.assert_close(rotation(given), expected, rtol=1e-12, atol=1e-12)


def test_copies_and_saved_modules_carry_no_stale_factors():
    rotation = rotation_of(6)
    given = torch.randn(6, 3, dtype=torch.float64)
    rotation(given)
    copied = copy.deepcopy(rotation)
    in_place(copied)
    expected = printed(copied.weight.detach()) @ given
    torch.testing.assert_close(copied(given), expected, rtol=1e-10, atol=1e-12)
    assert list(rotation.state_dict()) == ["weight"]
    stream = io.BytesIO()
    torch.save(rotation, stream)
    assert len(stream.getvalue()) < 8000


def test_factors_made_under_inference_mode_serve_training():
    rotation = rotation_of(6)
    given = torch.randn(6, 3, dtype=torch.float64)
    with torch.inference_mode():
        rotation(given)
    rotation(given).sum().backward()
    assert rotation.weight.grad is not None


def test_bfloat16_weights_and_autocast_rotate_in_float32():
    rotation = rotation_of(6, dtype=torch.bfloat16)
    given = torch.randn(6, 3)
    expected = printed(rotation.weight.detach().double()) @ given.double()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for columns in (given, given.bfloat16()):
            assert rotation(columns).dtype == torch.float32
        torch.testing.assert_close(rotation(given).double(), expected, rtol=1e-5, atol=1e-5)


def test_second_order_gradients_are_refused_in_words():
    rotation = rotation_of(4)
    rotated = rotation(torch.randn(4, 2, dtype=torch.float64))
    with pytest.raises(ConfigError, match="the rotation has gradients of first order only"):
        torch.autograd.grad(rotated.sum(), rotation.weight, create_graph=True)


def test_the_orthogonality_error_sees_a_matrix_that_is_not_orthogonal():
    rotation = rotation_of(16, dtype=torch.float32)
    assert 0 < rotation.orthogonality_error() < 1e-5
    assert 0 < rotation.orthogonality_error(torch.float64) < 1e-13
    Q = rotation.matrix().clone()
    Q[0, 0] += 0.01
    assert Dense(Q).orthogonality_error > 1e-3


def test_a_trace_in_float64_of_float32_weights_factorises_once(factorisations):
    rotation = rotation_of(6, dtype=torch.float32)
    rotation(torch.randn(6, 3, dtype=torch.float64))
    rotation.matrix(torch.float64)
    rotation.orthogonality_error(torch.float64)
    assert len(factorisations) == 1


def without_pivots(M):
    """Both triangles by Gauss's elimination; PyTorch has it on CUDA only."""
    lu = M.clone()
    for row in range(len(lu) - 1):
        lu[row + 1 :, row] /= lu[row, row]
        lu[row + 1 :, row + 1 :] -= torch.outer(lu[row + 1 :, row], lu[row, row + 1 :])
    return UnpivotedFactors(lu)


KINDS = {"pivoted": Factors.of, "unpivoted": lambda weight: without_pivots(system(weight))}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("size", [0.0, 0.3, 4.0, 100.0])
def test_factors_multiply_by_the_rotation_and_its_transpose(kind, size):
    weight = rotation_of(9, size=size).weight.detach()
    Q, given = printed(weight), torch.randn(9, 4, dtype=torch.float64)
    factors = kind(weight)
    for transposed, matrix in {False: Q, True: Q.mT}.items():
        got = factors.times(given, transposed=transposed)
        torch.testing.assert_close(got, matrix @ given, rtol=1e-9, atol=1e-10)


def test_elimination_without_pivots_is_kept_where_it_is_accurate_only():
    weight = rotation_of(120, size=0.05, dtype=torch.float32).weight.detach()
    M = system(weight)
    factors = without_pivots(M)
    assert factors.lu.diagonal().abs().min() > 0.99  # Schur complements keep their unit part
    assert factors.leave_only_rounding(M)
    assert not UnpivotedFactors(factors.lu * 1.001).leave_only_rounding(M)
    assert not UnpivotedFactors(factors.lu * float("nan")).leave_only_rounding(M)
    far = system(1000 * weight)  # elements grow with |A|^2: pivots are needed
    assert not without_pivots(far).leave_only_rounding(far)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_factorises_without_pivots_and_agrees():
    weight = rotation_of(300, size=0.1, dtype=torch.float32).weight.detach()
    given = torch.randn(300, 7)
    factors = UnpivotedFactors.of(weight.cuda())
    got = factors.times(given.cuda(), transposed=False).cpu()
    torch.testing.assert_close(got, printed(weight.double()).float() @ given, rtol=1e-4, atol=1e-4)
