"""The folded form: same call, same tokens, no d^2 per image, and files that fit."""

import json

import pytest
import torch

from interfaces.test_paiq import features_of, interface_of, tokens_slowly
from paiq.errors import ConfigError, DataError
from paiq.interfaces import create
from paiq.interfaces.folding import Folded, triangular


@pytest.mark.parametrize("name", ["paiq", "pai"])
@pytest.mark.parametrize("hidden", [5, 11, 20, 64])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_the_folded_form_gives_the_same_tokens(name, hidden, batch):
    interface = interface_of(name, hidden_size=hidden)
    spatial, semantic = features_of(batch)
    expected = interface.trace(spatial, semantic).tokens
    folded = interface.fold()
    assert folded.num_tokens == interface.num_tokens == 6
    torch.testing.assert_close(folded(spatial, semantic).tokens, expected, rtol=1e-10, atol=1e-12)
    single = interface.float().fold()(spatial.float(), semantic.float()).tokens
    assert single.dtype == torch.float32
    assert (single.double() - expected).norm() <= 1e-5 * expected.norm()


def test_the_folded_form_matches_the_printed_equations():
    interface = interface_of()
    spatial, semantic = features_of()
    expected = tokens_slowly(interface, spatial, semantic)
    tokens = interface.fold()(spatial, semantic).tokens
    torch.testing.assert_close(tokens, expected, rtol=1e-6, atol=1e-7)


def test_a_realistic_width_is_as_accurate_as_the_unfolded_form():
    torch.manual_seed(0)
    interface = create("paiq", hidden_size=320, spatial_size=192, semantic_size=160,
                       spatial_tokens=49, semantic_tokens=144).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in interface.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    spatial = 3 * torch.randn(2, 49, 192) + 5 * torch.randn(192)
    semantic = torch.randn(2, 144, 160) + 20 * torch.randn(160)  # a large common part
    folded, plain = interface.fold(), interface(spatial, semantic).tokens
    expected = interface.double().trace(spatial.double(), semantic.double()).tokens
    of_folded = (folded(spatial, semantic).tokens - expected).norm() / expected.norm()
    of_plain = (plain - expected).norm() / expected.norm()
    assert of_folded < 1e-5
    assert of_folded < 3 * of_plain + 1e-6


def test_keys_near_zero_keep_their_direction():
    """Norms are sums of squares of the key itself, never a difference of large numbers."""
    interface = interface_of(dtype=torch.float32, hidden_size=16)
    spatial, semantic = features_of(dtype=torch.float32)
    with torch.no_grad():  # the bias cancels the first token's content almost exactly
        projection = interface.semantic_projection
        projection.bias.copy_(-(projection.weight @ semantic[0, 0]) * (1 - 1e-4))
    plain, folded = interface(spatial, semantic).tokens, interface.fold()(spatial, semantic).tokens
    expected = interface.double().trace(spatial.double(), semantic.double()).tokens
    # A quadratic form y^T N y would lose all digits here: the error would be of order one.
    assert (folded - expected).norm() <= 3 * (plain - expected).norm() <= 1e-3 * expected.norm()


@pytest.mark.parametrize("shape", [(192, 200), (50, 200), (208, 16), (16, 1)])
def test_a_triangular_product_strip_by_strip_is_the_product(shape):
    weight = torch.triu(torch.randn(shape, dtype=torch.float64))
    rows, bias = torch.randn(300, shape[1]).double(), torch.randn(shape[0]).double()
    torch.testing.assert_close(triangular(rows, weight, bias), rows @ weight.mT + bias)


def test_no_tensor_of_the_folded_form_grows_with_the_square_of_the_hidden_size():
    sizes = {}
    for hidden in (64, 128):
        folded = interface_of(hidden_size=hidden).fold()
        sizes[hidden] = sum(tensor.numel() for tensor in folded.state_dict().values())
    assert sizes[128] < 2.1 * sizes[64]


def test_folding_freezes_the_weights_of_that_moment():
    interface = interface_of()
    spatial, semantic = features_of()
    folded = interface.fold()
    before = folded(spatial, semantic).tokens
    with torch.no_grad():
        interface.query.weight.mul_(2)
        interface.spatial_projection.weight.mul_(2)
    assert torch.equal(folded(spatial, semantic).tokens, before)
    assert not list(folded.parameters())
    assert not before.requires_grad


def test_saved_and_loaded_it_is_equal(tmp_path):
    folded = interface_of(temperature=0.07, scale=0.3).fold()
    folded.save(tmp_path / "f")
    again = Folded.load(tmp_path / "f")
    features = features_of()
    assert torch.equal(again(*features).tokens, folded(*features).tokens)
    assert again.rule == folded.rule
    assert again.sizes == folded.sizes


def spoil_settings(folder):
    (folder / "folded.json").write_text("{")


def other_sizes(folder):
    settings = json.loads((folder / "folded.json").read_text())
    settings["sizes"]["hidden_size"] = 21
    (folder / "folded.json").write_text(json.dumps(settings))


def cut_tensors(folder):
    data = (folder / "folded.safetensors").read_bytes()
    (folder / "folded.safetensors").write_bytes(data[:-7])


def no_tensors(folder):
    (folder / "folded.safetensors").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_settings, "holds no folded interface"),
        (other_sizes, "does not fit"),
        (cut_tensors, "holds no folded interface"),
        (no_tensors, "cannot read"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, spoil, words):
    interface_of().fold().save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=words):
        Folded.load(tmp_path)


def test_bad_features_are_refused_as_before():
    folded = interface_of().fold()
    spatial, semantic = features_of()
    with pytest.raises(ConfigError, match="spatial features must be"):
        folded(spatial[:, :5], semantic)
    spatial[0, 0, 0] = float("nan")
    with pytest.raises(DataError, match="spatial features hold 1"):
        folded(spatial, semantic)


def test_an_outer_autocast_does_not_reach_it():
    folded = interface_of(dtype=torch.float32).fold()
    spatial, semantic = features_of(dtype=torch.float32)
    expected = folded(spatial, semantic).tokens
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(folded(spatial, semantic).tokens, expected)


def test_interfaces_without_a_cheaper_form_fold_to_themselves():
    for name in ("spatial", "semantic", "concat"):
        interface = create(name, hidden_size=8)
        assert interface.fold() is interface


def test_direct_interpolation_has_the_same_outputs_and_allocation():
    interface = interface_of()
    direct = interface.as_direct_interpolation()
    assert direct.name == "pai"
    features = features_of()
    left, right = interface.trace(*features), direct.trace(*features)
    torch.testing.assert_close(right.tokens, left.tokens, rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(right.allocation, left.allocation, rtol=1e-10, atol=1e-12)
    assert (right.base - left.base).norm() > 1e-2 * left.base.norm()  # D is not identified


def test_direct_interpolation_in_float32_stays_close():
    interface = interface_of(dtype=torch.float32)
    features = features_of(dtype=torch.float32)
    expected = interface(*features).tokens
    got = interface.as_direct_interpolation()(*features).tokens
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("given", [torch.bfloat16, torch.float32, torch.float64])
def test_moved_to_another_precision_it_still_computes_in_float32_at_least(weights, given):
    interface = interface_of(dtype=torch.float32)
    features = features_of(dtype=given)
    expected = interface(*features).tokens
    tokens = interface.fold().to(weights)(*features).tokens
    assert tokens.dtype == given
    tolerance = 5e-2 if torch.bfloat16 in (weights, given) else 1e-5
    torch.testing.assert_close(tokens, expected, rtol=tolerance, atol=tolerance)
