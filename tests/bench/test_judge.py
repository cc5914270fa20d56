"""A small soak of the judge: the numbers of `paiq bench judge` are counted, not claimed."""

from paiq.bench.judge import Settings, ledger_rate, soak, table

SMALL = Settings(keys=60, kills=1, fault_share=0.02, slots=8, body_bytes=300)


def test_a_small_soak_loses_nothing_and_its_table_says_so(tmp_path):
    soaked = soak(SMALL, tmp_path)
    assert soaked.lost == soaked.wrong_scores == soaked.unrecorded_sends == 0
    assert soaked.coverage.expected == 60
    assert soaked.server["most_sends"] <= 3
    assert soaked.server["most_in_flight"] <= 8 + 8  # those of a killed process may linger
    assert soaked.server["requests"] >= soaked.server["bodies"] == 60
    text = table(SMALL, soaked, {}, 1.0)
    assert "| keys | 60 |" in text
    assert "| lost (neither of the two) | 0 |" in text


def test_the_ledger_alone_writes_rows(tmp_path):
    assert ledger_rate(tmp_path / "x.sqlite", 64) > 0
