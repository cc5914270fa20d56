from fractions import Fraction

import pytest

from paiq.analysis.compute import (
    GIGA,
    PREFIXES,
    SEMANTIC,
    SPATIAL,
    decimals,
    fused_percent,
    fusion,
    parameters,
    proxy_flops,
    relative_percent,
)
from paiq.analysis.shapes import BACKBONES, backbone
from paiq.errors import ConfigError
from paiq.interfaces import INTERFACES, split_settings

# Text towers as their publishers list them.
PUBLISHED = {
    "Qwen3.5-2B": 1_881_825_088,
    "Qwen3.5-9B": 8_953_803_264,
    "Qwen3.5-27B": 26_895_998_464,
    "InternVL3.5-8B": 8_190_735_360,
    "Llama-3.1-8B": 8_030_261_248,
}
GFLOPS = {
    "Qwen3.5-2B": ("1,100.4", "2,773.4", "2,180.1", "1,465.0"),
    "Qwen3.5-9B": ("4,777.8", "11,825.5", "8,544.9", "5,142.4"),
    "Qwen3.5-27B": ("14,107.7", "34,791.5", "24,692.9", "14,472.4"),
    "InternVL3.5-8B": ("4,381.0", "10,848.8", "7,858.1", "4,745.7"),
    "Llama-3.1-8B": ("4,297.5", "10,643.4", "7,713.7", "4,662.2"),
}
PERCENT = {
    "Qwen3.5-2B": ("100.00", "252.05", "198.13", "133.14"),
    "Qwen3.5-9B": ("100.00", "247.51", "178.85", "107.63"),
    "Qwen3.5-27B": ("100.00", "246.61", "175.03", "102.58"),
    "InternVL3.5-8B": ("100.00", "247.63", "179.37", "108.32"),
    "Llama-3.1-8B": ("100.00", "247.66", "179.49", "108.49"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_text_tower_counts_what_its_publisher_lists(name):
    assert backbone(name).parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", GFLOPS)
def test_coordinates_come_out_to_the_printed_digit(name):
    found = proxy_flops(backbone(name)).values()
    assert tuple(decimals(cost, 1, GIGA) for cost in found) == GFLOPS[name]
    shares = relative_percent(backbone(name)).values()
    assert tuple(decimals(share, 2) for share in shares) == PERCENT[name]


def test_the_towers_cost_what_the_paper_counts():
    assert decimals(SPATIAL.flops, 3, GIGA) == "121.806"
    assert decimals(SEMANTIC.flops, 3, GIGA) == "364.664"
    assert list(PREFIXES.values()) == [196, 576, 386, 196]


@pytest.mark.parametrize(
    ("name", "percent", "cached", "all_terms", "cayley"),
    [
        ("Qwen3.5-2B", "136.3", "134.3", "35.2", "22.9"),
        ("Qwen3.5-9B", "112.3", "108.5", "224.1", "183.3"),
        ("InternVL3.5-8B", "113.4", "109.3", "224.1", "183.3"),
        ("Llama-3.1-8B", "113.7", "109.4", "224.1", "183.3"),
        ("Qwen3.5-27B", "105.6", "103.0", "419.1", "357.9"),
    ],
)
def test_the_fusion_that_the_proxy_leaves_out(name, percent, cached, all_terms, cayley):
    shape = backbone(name)
    assert decimals(fused_percent(shape, cached=False), 1) == percent
    assert decimals(fused_percent(shape, cached=True), 1) == cached
    assert decimals(fusion(shape.hidden).total, 1, GIGA) == all_terms
    assert decimals(fusion(shape.hidden).cayley, 1, GIGA) == cayley


@pytest.mark.parametrize("hidden", [8, 2048, 4096, 5120])
def test_parameter_parts_add_up_to_what_the_interface_counts(hidden):
    sizes, options = split_settings("paiq", {"hidden_size": hidden})
    assert parameters(hidden).total == INTERFACES["paiq"].count_parameters(sizes, options)
    sizes, options = split_settings("pai", {"hidden_size": hidden})
    row = parameters(hidden)
    assert row.content + row.matching == INTERFACES["pai"].count_parameters(sizes, options)


def test_the_rotation_turns_in_fewer_directions_than_it_stores():
    assert [parameters(d).rotation_freedom for d in (2048, 4096, 5120)] == [
        2_096_128,
        8_386_560,
        13_104_640,
    ]


@pytest.mark.parametrize(
    ("value", "places", "shown"),
    [(Fraction(1, 2), 0, "1"), (Fraction(1005, 1000), 2, "1.01"), (12345, 1, "12,345.0")],
)
def test_rounding_is_half_up_on_exact_numbers(value, places, shown):
    assert decimals(value, places) == shown


def test_an_unknown_backbone_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"Did you mean 'Qwen3.5-2B'"):
        backbone("Qwen3.5-2b")
    assert len(BACKBONES) == 5
