import dataclasses
import itertools
import re

import pytest
import yaml

from paiq.errors import ConfigError
from paiq.judging import routes
from paiq.judging.types import Failure

PASTED = "sk-or-v1-0123456789abcdef"


def values(**changes):
    text = (routes.PRESETS / "local-vllm.yaml").read_text()
    return {**yaml.safe_load(text), **changes}


def write(tmp_path, **changes):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values(**changes)))
    return str(path)


def test_the_papers_primary_route_has_its_printed_settings():
    route = routes.load("openrouter-gpt-4o")
    assert route.endpoint == "https://openrouter.ai/api/v1/chat/completions"
    assert route.model == "openai/gpt-4o"
    assert route.accepted_model == "^(?:openai/)?gpt-4o(?:-[0-9]{4}-[0-9]{2}-[0-9]{2})?$"
    assert (route.detail, route.temperature, route.max_tokens) == ("high", 0.1, 512)
    assert (route.connect_seconds, route.read_seconds, route.attempts) == (20, 120, 3)
    assert route.extra == {"provider": {"allow_fallbacks": False}}


def test_the_papers_recovery_route_has_its_printed_settings():
    route = routes.load("paratera-qwen3-vl")
    assert route.endpoint == "https://llmapi.paratera.com/v1/chat/completions"
    assert route.model == route.accepted_model == "Qwen3-VL-235B-A22B-Instruct"
    assert (route.connect_seconds, route.read_seconds, route.attempts) == (20, 180, 3)
    assert routes.primary_of(route) == routes.load("openrouter-gpt-4o")


@pytest.mark.parametrize("name", routes.available())
def test_every_shipped_route_is_named_as_its_file_and_accepts_what_it_asks_for(name):
    route = routes.load(name)
    assert route.name == name
    assert route.accepts.fullmatch(route.model)
    assert routes.primary_of(routes.primary_of(route)) == routes.primary_of(route)


def test_one_file_adds_a_route(tmp_path):
    route = routes.load(write(tmp_path, name="mine", endpoint="https://judge.example/v1/chat"))
    assert route.name == "mine"


def test_an_unknown_route_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'openrouter-gpt-4o'"):
        routes.load("openrouter-gpt4o")


def test_an_unknown_setting_is_named(tmp_path):
    with pytest.raises(ConfigError, match="temprature"):
        routes.load(write(tmp_path, temprature=0))


@pytest.mark.parametrize(
    "changes",
    [
        {"api_key": PASTED},
        {"key": PASTED},
        {"Authorization": PASTED},
        {"token": PASTED},
        {"key_variable": PASTED},
        {"key_variable": f"${PASTED}"},
        {"endpoint": f"https://user:{PASTED}@host/v1"},
        {"endpoint": f"https://host/v1?key={PASTED}"},
        {"endpoint": f"https://host/v1#{PASTED}"},
        {"endpoint": f"ftp://{PASTED}"},
    ],
)
def test_a_pasted_key_is_refused_and_not_repeated(tmp_path, changes):
    with pytest.raises(ConfigError) as caught:
        routes.load(write(tmp_path, **changes))
    assert PASTED not in str(caught.value)
    assert PASTED not in repr(caught.value.__cause__)
    assert re.search("key_variable|endpoint", str(caught.value))


def test_a_route_made_in_code_takes_the_name_of_a_variable_only():
    with pytest.raises(ConfigError, match="NAME of an environment variable"):
        dataclasses.replace(RECOVERY, key_variable=PASTED)


@pytest.mark.parametrize("text", ["[1, 2]", "just text", "", "7"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="mapping of settings"):
        routes.load(str(path))


@pytest.mark.parametrize("temperature", [0, 2])
def test_the_ends_of_the_range_of_temperatures_are_allowed(temperature):
    assert dataclasses.replace(RECOVERY, temperature=temperature).temperature == temperature


def test_a_file_that_is_no_yaml_is_not_quoted(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f'key: "{PASTED}\n: [')
    with pytest.raises(ConfigError) as caught:
        routes.load(str(path))
    assert PASTED not in str(caught.value) + repr(caught.value.__cause__)


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:1/v1", "http://127.9.9.9/v1", "http://[::1]:8/v1", "http://localhost/v1"],
)
def test_plain_http_is_fine_on_this_machine(tmp_path, endpoint):
    assert routes.load(write(tmp_path, endpoint=endpoint)).endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://host/v1",
        "http://127.0.0.1.evil.example/v1",
        "http://localhost.evil.example/v1",
        "http://169.254.169.254/v1",
        "http://10.0.0.1/v1",
        "http://0.0.0.0/v1",
        "http://2130706433/v1",
        "file:///etc/passwd",
        "127.0.0.1:8000/v1",
        "https://",
        "https://[::1",
        "https://host:port/v1",
        "",
    ],
)
def test_other_addresses_need_https_and_a_host(tmp_path, endpoint):
    with pytest.raises(ConfigError, match="mine"):
        routes.load(write(tmp_path, endpoint=endpoint))


@pytest.mark.parametrize(
    "changes",
    [
        {"attempts": 4},
        {"attempts": 0},
        {"temperature": -0.1},
        {"max_tokens": 0},
        {"read_seconds": 0},
        {"total_seconds": float("nan")},
        {"concurrency": 0},
        {"accepted_model": "("},
        {"accepted_model": ".*"},
        {"accepted_model": ""},
        {"model": " "},
        {"evaluator": ""},
        {"families": []},
        {"families": ["poetry"]},
        {"name": "../x"},
        {"detail": "best"},
        {"extra": {"models": ["gpt-4o", "other"]}},
        {"extra": {"temperature": 1}},
        {"recovers": "openrouter-gpt-4o"},
    ],
)
def test_a_setting_that_would_break_the_protocol_is_refused(tmp_path, changes):
    with pytest.raises(ConfigError):
        routes.load(write(tmp_path, **changes))


def test_a_recovery_route_must_name_a_primary_one(tmp_path):
    route = routes.load(write(tmp_path, recovers="nowhere", families=["vqa"]))
    with pytest.raises(ConfigError, match="no route 'nowhere'"):
        routes.primary_of(route)


RECOVERY = routes.load("paratera-qwen3-vl")


@pytest.mark.parametrize("failure", Failure)
def test_recovery_opens_for_empty_responses_only(failure):
    allowed = failure is Failure.EMPTY_RESPONSE
    assert routes.may_recover(RECOVERY, "vqa", [failure] * 3) is allowed


@pytest.mark.parametrize("position", range(3))
def test_one_other_failure_among_the_attempts_closes_recovery(position):
    for other in set(Failure) - {Failure.EMPTY_RESPONSE}:
        attempts = [Failure.EMPTY_RESPONSE] * 3
        attempts[position] = other
        assert not routes.may_recover(RECOVERY, "vqa", attempts)


def test_descriptions_unsent_keys_and_primary_routes_recover_nothing():
    empty = [Failure.EMPTY_RESPONSE]
    assert not routes.may_recover(RECOVERY, "description", empty)
    assert not routes.may_recover(RECOVERY, "vqa", [])
    assert not routes.may_recover(routes.load("openrouter-gpt-4o"), "vqa", empty)


def test_numbers_of_a_route_are_checked_however_it_is_built():
    for name, wrong in itertools.product(("connect_seconds", "attempts"), (0, -1)):
        with pytest.raises(ConfigError, match=name):
            dataclasses.replace(RECOVERY, **{name: wrong})
