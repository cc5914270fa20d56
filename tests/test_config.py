from dataclasses import dataclass, field

import pytest

from paiq.config import from_mapping, load_yaml, override, save_yaml, to_mapping
from paiq.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.1
    name: str = "a"


@dataclass(frozen=True, kw_only=True)
class Outer:
    steps: int = 3
    inner: Inner = field(default_factory=Inner)
    spare: Inner | None = None
    more: tuple[Inner, ...] = ()

    def __post_init__(self):
        if self.steps < 1:
            raise ConfigError("steps must be positive")


def test_words_change_one_field_each():
    changed = override(Outer(), ["steps=5", "inner.rate=0.5"])
    assert changed == Outer(steps=5, inner=Inner(rate=0.5))


def test_all_mistakes_are_told_at_once_with_the_nearest_name():
    with pytest.raises(ConfigError) as caught:
        override(Outer(), ["step=5", "inner.rat=1", "loose"])
    for part in ("'step'", "Did you mean 'steps'", "Did you mean 'rate'", "'loose' is no override"):
        assert part in str(caught.value)


def test_wrong_values_name_their_path():
    with pytest.raises(ConfigError, match=r"inner\.rate.*got 'fast'"):
        override(Outer(), ["inner.rate=fast"])


def test_unknown_keys_in_a_mapping_are_refused():
    values = {"inner": {"rte": 1}, "spare": {"nme": 1}, "more": [{}, {"x": 1}]}
    with pytest.raises(ConfigError) as caught:
        from_mapping(Outer, values)
    for part in ("'inner.rte'", "mean 'rate'", "'spare.nme'", "'more.1.x'"):
        assert part in str(caught.value)


def test_yaml_goes_there_and_back(tmp_path):
    config = Outer(steps=9, inner=Inner(name="b"))
    save_yaml(config, tmp_path / "run.yaml")
    assert load_yaml(Outer, tmp_path / "run.yaml") == config
    assert to_mapping(config)["inner"] == {"rate": 0.1, "name": "b"}


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "x.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="mapping"):
        load_yaml(Outer, tmp_path / "x.yaml")


def test_post_init_speaks_through():
    with pytest.raises(ConfigError, match="steps must be positive"):
        override(Outer(), ["steps=0"])
