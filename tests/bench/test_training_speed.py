"""What the two measurements compare is the same work: the numbers, never the seconds."""

import pytest

from paiq.bench import step, train
from paiq.errors import ConfigError


def test_the_plain_loop_takes_the_same_steps(run):
    result = train.measure(run, train.Settings(turn=1, turns=2))
    assert len(result.losses) == 3
    for ours, plain in result.losses:
        assert ours == pytest.approx(plain, rel=2e-3)  # the store keeps bfloat16
    assert "times as fast" in train.table_of(result)


@pytest.mark.parametrize("micro", [1, 2])
def test_both_ways_take_the_same_step(micro):
    result = step.measure(step.Settings(shape="tiny", batch=3, micro=micro, device="cpu"))
    assert result.ours.loss == pytest.approx(result.plain.loss, rel=5e-3)
    assert sum(result.ours.parts.values()) <= result.ours.seconds
    assert set(result.ours.parts) >= {"interface forward", "language backward", "optimiser"}
    assert result.generation["first token"] > 0
    assert "Greedy generation" in step.table_of(result)


def test_a_machine_without_room_is_spared():
    with pytest.raises(ConfigError, match="GiB of free memory"):
        step.must_have_room(10**6, step.device_named("cpu"))


def test_wrong_settings_are_told():
    with pytest.raises(ConfigError, match="have 2b, tiny"):
        step.Settings(shape="3b")
    with pytest.raises(ConfigError, match="micro must lie in 1 to batch=2, got 3"):
        step.Settings(micro=3)
