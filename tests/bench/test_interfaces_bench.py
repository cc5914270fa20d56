"""The benchmark of the interfaces: its references are right, and one quick run says it all."""

import json
from dataclasses import replace

import pytest
import torch

from paiq.bench import interfaces as bench
from paiq.bench.references import (
    dense_cayley,
    papers_path,
    pots_matching,
    torch_rotation,
)
from paiq.bench.tables import folded_operations
from paiq.bench.timing import device_named, peak_memory, side_by_side
from paiq.cli.main import main
from paiq.errors import ConfigError
from paiq.interfaces import Sizes
from paiq.interfaces.matching import MatchingRule, cosines, read

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def case():
    return bench.case_of(bench.QUICK, CPU, "float32", 96, 2)


def test_the_papers_path_gives_the_tokens_of_the_interface(case):
    interface = case.interface
    expected = interface.trace(case.spatial, case.semantic).tokens
    torch.testing.assert_close(
        papers_path(interface, case.spatial, case.semantic), expected, rtol=1e-5, atol=1e-5
    )
    assert (expected - case.interface.spatial_projection(case.spatial)).norm() > 1


def test_the_transcribed_rotation_is_the_interfaces(case):
    weight = case.interface.rotation.weight.detach()
    torch.testing.assert_close(
        dense_cayley(weight), case.interface.rotation.matrix(), rtol=1e-5, atol=1e-6
    )


def test_pot_agrees_on_the_allocation_it_is_timed_for(case):
    similarity = cosines(case.spatial, case.semantic).double()
    rule = MatchingRule(stabilizer=0.0)
    plans = torch.stack(pots_matching(similarity, rule)())
    conditional = plans / plans.sum(2, keepdim=True)
    got = read(similarity, case.semantic.double(), rule).allocation
    torch.testing.assert_close(conditional, got, rtol=1e-9, atol=1e-12)


def test_torchs_parametrization_rotates():
    rows = torch.randn(5, 12)
    torch.testing.assert_close(torch_rotation(12)(rows).norm(dim=1), rows.norm(dim=1))


def test_operations_are_counted_as_the_shapes_say():
    sizes = Sizes(hidden_size=4096)
    assert round(folded_operations(sizes, 1) / 1e9, 1) == 5.8
    assert folded_operations(sizes, 3) == 3 * folded_operations(sizes, 1)


def test_contenders_take_turns():
    order = []
    calls = {name: (lambda name=name: order.append(name)) for name in "ab"}
    timings = side_by_side(calls, CPU, seconds=0.0)
    assert set(timings) == {"a", "b"}
    assert min(t.rounds for t in timings.values()) >= 2
    assert order[:8] == [*"aaaa", *"bbbb"]  # warm-up
    assert all(t.low_ms <= t.median_ms <= t.high_ms for t in timings.values())


def test_peak_memory_counts_what_lives_together():
    def two_then_one():
        a = torch.ones(1000)
        b = a + 1
        del a
        return b.add_(1)[:10]

    assert peak_memory(two_then_one, CPU) == 8000


def test_a_quick_run_writes_a_table_numbers_and_plots(tmp_path, capsys):
    words = ["bench", "interfaces", "growth=false", "seconds=0.01", "device=cpu"]
    assert main([*words, "--quick", "--threads", "1", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for title in ("Inference", "Training step", "Matching alone", "Rotation alone"):
        assert f"### {title}" in shown
    numbers = json.loads((tmp_path / "interfaces-cpu.json").read_text())
    assert numbers["machine"]["threads"] == 1
    parts = {(row["part"], row["contender"]) for row in numbers["rows"]}
    assert {("inference", "folded"), ("inference", "paper"), ("inference", "mlp")} <= parts
    assert {("training", "paiq"), ("matching", "pot"), ("rotation", "torch")} <= parts
    errors = [row["error"] for row in numbers["rows"] if row["error"] is not None]
    assert errors
    assert max(errors) < 1e-5
    assert (tmp_path / "interfaces-cpu-ratios.svg").read_text().lstrip().startswith("<?xml")


def test_growth_varies_one_size_at_a_time():
    points = list(bench.growth_points(replace(bench.QUICK, growth=True)))
    for axis, sizes in points:
        others = {key: value for key, value in sizes.items() if key != axis}
        middle = {"spatial_tokens": 16, "semantic_tokens": 36, "hidden_size": 96}
        assert others == {key: middle[key] for key in others}


def test_unknown_devices_and_settings_are_answered():
    with pytest.raises(ConfigError, match="'cpu' or 'cuda'"):
        device_named("tpu")
    assert main(["bench", "interfaces", "batchs=[1]"]) == 2
