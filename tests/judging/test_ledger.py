"""The ledger's own rules: append-only, chained, one writer, three sends, one accepted reply."""

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from judging.fault_server import job
from paiq.errors import DataError
from paiq.judging import entries
from paiq.judging.ledger import DamagedLedgerError, Ledger, LedgerError, connect
from paiq.judging.ledger_files import export, merge, verify
from paiq.judging.ledger_rows import SCHEMA, Entry, RowKind
from paiq.judging.ledger_state import Book, State
from paiq.judging.lock import BusyError, beside
from paiq.judging.types import Accepted, Failure, Outcome, Reply, failed

OPENED = Entry(kind="run_opened", route="fake", body={"recovers": ""})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fake.sqlite"


def intent(wanted, attempt=1, route="fake"):
    return entries.intent(wanted.load(), route=route, attempt=attempt, text_bytes=10)


def accepted(wanted, attempt=1, score=70, response="r1", route="fake"):
    reply = Accepted(
        axis="accuracy",
        score=score,
        response_id=response,
        model="gpt-4o",
        finish_reason="stop",
        body_sha256="0" * 64,
    )
    result = Outcome(kind="accepted", accepted=reply, response_id=response, model="gpt-4o")
    sent = intent(wanted, attempt, route)
    return entries.outcome(sent, Reply(status=200), result, evaluator="gpt-4o")


def failure(wanted, attempt=1, kind=Failure.SCHEMA, route="fake"):
    result = failed(kind, "no")
    return entries.outcome(intent(wanted, attempt, route), Reply(status=200), result, evaluator="x")


def fill(path, count=20, start=0):
    """A ledger of a finished little run."""
    replies = []
    with Ledger(path, clock=lambda: 1.5) as ledger:
        wanted = [job(f"KEY-{number}") for number in range(start, start + count)]
        ledger.append([OPENED, *(item.expected.entry() for item in wanted)])
        ledger.append([intent(item) for item in wanted])
        for number, item in enumerate(wanted, start=start):
            replies += accepted(item, response=f"r{number}")
        ledger.append(replies)
    return wanted


# Append-only


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET at = 0 WHERE seq = 3",
        "DELETE FROM record WHERE seq = 3",
        "UPDATE score SET value = 100",
        "DELETE FROM score",
        "INSERT OR REPLACE INTO record SELECT * FROM record WHERE seq = 3",
        "INSERT INTO record SELECT 999, kind, key, route, attempt, at, body, previous, digest"
        " FROM record WHERE seq = 1",
        "INSERT INTO score VALUES ('k', 2, 'accepted', 50, 'gpt-4o')",
        "INSERT INTO score VALUES ('k', 1, 'run_opened', 50, 'gpt-4o')",
    ],
)
def test_the_database_itself_refuses_to_change_history(path, statement):
    fill(path)
    before = verify(path).digest
    database = connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        database.execute(statement)
    database.close()
    assert verify(path).digest == before


def test_a_score_cannot_stand_without_its_accepted_reply(path):
    wanted = fill(path, 1)
    key = wanted[0].expected.key
    database = connect(path)
    with pytest.raises(sqlite3.IntegrityError, match=r"accepted reply|UNIQUE|FOREIGN"):
        database.execute("INSERT INTO score VALUES (?, 4, 'accepted', 99, 'x')", (key,))
    with pytest.raises(sqlite3.IntegrityError):
        database.execute("INSERT INTO score VALUES ('other', 5, 'accepted', 70, 'x')")
    database.close()


def test_a_key_has_one_accepted_reply(path):
    wanted = fill(path, 1)
    with Ledger(path) as ledger:
        ledger.append([intent(wanted[0], 2)])
        with pytest.raises(LedgerError):
            ledger.append(accepted(wanted[0], 2, score=99, response="late"))
        book = Book(ledger.rows())
    assert book.key(wanted[0].expected.key).score == 70


def test_a_fourth_send_is_refused_unless_the_operator_granted_it(path):
    wanted = job("KEY-1")
    with Ledger(path) as ledger:
        ledger.append([OPENED, wanted.expected.entry()])
        for attempt in (1, 2, 3):
            ledger.append([intent(wanted, attempt)])
            ledger.append(failure(wanted, attempt))
        with pytest.raises(LedgerError, match="three times"):
            ledger.append([intent(wanted, 4)])
        ledger.append([intent(wanted, 1, "other")])
        ledger.append([entries.grant(wanted.expected.key, "fake", Failure.SCHEMA)])
        ledger.append([intent(wanted, 4)])
        with pytest.raises(LedgerError, match="three times"):
            ledger.append([intent(wanted, 5)])


def test_an_attempt_is_recorded_once_and_an_outcome_needs_its_intent(path):
    wanted = job("KEY-1")
    with Ledger(path) as ledger:
        with pytest.raises(LedgerError, match="intent"):
            ledger.append(failure(wanted))
        ledger.append([intent(wanted)])
        with pytest.raises(LedgerError):
            ledger.append([intent(wanted)])


def test_a_refused_batch_leaves_no_part_of_itself(path):
    wanted = job("KEY-1")
    with Ledger(path) as ledger:
        with pytest.raises(LedgerError):
            ledger.append([OPENED, intent(wanted), intent(wanted)])
        assert list(ledger.rows()) == []
        assert [row.seq for row in ledger.append([OPENED])] == [1]


def steps_of_a_send(path):
    """How many steps SQLite's machine takes to record one send with its accepted reply."""
    steps = []
    with Ledger(path) as ledger:
        ledger._database.set_progress_handler(lambda: steps.append(1) and None, 10)
        wanted = job("KEY-late")
        ledger.append([wanted.expected.entry(), intent(wanted)])
        ledger.append(accepted(wanted, response="late"))
    return len(steps)


def test_the_last_row_of_a_long_ledger_costs_what_the_first_did(path, tmp_path):
    fill(path, 1)
    fill(tmp_path / "long.sqlite", 1500)
    assert steps_of_a_send(tmp_path / "long.sqlite") < 2 * steps_of_a_send(path)


def test_the_schema_knows_every_kind_of_row():
    for kind in RowKind.__args__:
        assert f"'{kind}'" in SCHEMA


# One writer


def test_a_second_writer_is_refused_with_the_pid_of_the_first(path):
    script = (
        "import sys; from pathlib import Path; from paiq.judging.ledger import Ledger\n"
        "Ledger(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert owner.stdout.readline() == b"open\n"
    with pytest.raises(BusyError, match=f"process {owner.pid};"):
        Ledger(path)
    owner.kill()  # the lock dies with its process, whatever the file still says
    owner.wait()
    Ledger(path).close()


# Damage


def bodies(path):
    with Ledger(path) as ledger:
        return [row.text for row in ledger.rows()]


@pytest.mark.parametrize("field", ["body", "at", "key", "digest", "previous", "kind"])
def test_a_changed_record_is_named(path, field):
    fill(path)
    database = sqlite3.connect(path)  # without our triggers' protection: an attacker's hands
    database.executescript("DROP TRIGGER record_is_final; DROP TRIGGER record_stays;")
    value = {"at": "2.5", "kind": "'operator'"}.get(field, f"replace({field}, '0', '1')")
    database.execute(f"UPDATE record SET {field} = {value} WHERE seq = 9")
    database.commit()
    database.close()
    with pytest.raises(DamagedLedgerError, match=r"record 9 is not the one .* 1 to 8 are good"):
        Ledger(path)


def test_a_missing_record_and_swapped_records_are_named(path):
    fill(path)
    database = sqlite3.connect(path)
    database.executescript(
        "DROP TRIGGER record_stays; DROP TRIGGER record_is_final; DELETE FROM record WHERE seq = 7"
    )
    database.close()
    with pytest.raises(DamagedLedgerError, match="record 7 is missing"):
        Ledger(path)
    database = sqlite3.connect(path)
    database.executescript(
        "UPDATE record SET seq = 7 WHERE seq = 9; UPDATE record SET seq = 9 WHERE seq = 8;"
        "UPDATE record SET seq = 8 WHERE seq = 9"
    )
    database.close()
    with pytest.raises(DamagedLedgerError, match="record 7 is not the one"):
        Ledger(path)


def test_a_removed_or_changed_score_is_noticed(path):
    fill(path)
    database = sqlite3.connect(path)
    database.executescript("DROP TRIGGER score_stays; DELETE FROM score WHERE value = 70")
    database.commit()
    database.close()
    with pytest.raises(DamagedLedgerError, match="20 accepted replies and 0 scores"):
        verify(path)


def test_flipped_bytes_anywhere_never_give_another_ledger(path, tmp_path):
    """Every flip is either refused or without effect; the good prefix is a prefix."""
    fill(path, 40)
    whole, data = bodies(path), path.read_bytes()
    refused = 0
    for place in range(20, len(data), 1777):
        broken = tmp_path / "broken.sqlite"
        broken.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        try:
            assert verify(broken).rows == len(whole)
            assert bodies(broken) == whole
        except DataError:
            refused += 1
            check_prefix(broken, tmp_path / "prefix.jsonl", whole)
        for leftover in tmp_path.glob("broken.sqlite*"):
            leftover.unlink()
    assert refused > 10


def check_prefix(broken, to, whole):
    try:
        count, _ = export(broken, to, good_prefix=True)
    except DataError:
        return  # not even SQLite can open it
    kept = [json.loads(line)["body"] for line in to.read_text().splitlines()]
    assert kept == [json.loads(text) for text in whole[:count]]


def test_a_file_cut_at_any_page_is_refused(path, tmp_path):
    fill(path, 40)
    data = path.read_bytes()
    for pages in range(1, len(data) // 4096):
        cut = tmp_path / "cut.sqlite"
        cut.write_bytes(data[: pages * 4096])
        with pytest.raises(DataError):
            verify(cut)


def killed_while_writing(path, count=20):
    """A ledger whose writer died: everything is still in the write-ahead log."""
    script = (
        "import os, sys; from pathlib import Path\n"
        "from judging import test_ledger as t; from paiq.judging.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "ledger.append([t.OPENED])\n"
        "for n in range(int(sys.argv[2])):\n"
        "    w = t.job(f'KEY-{n}')\n"
        "    ledger.append([w.expected.entry(), t.intent(w)])\n"
        "    ledger.append(t.accepted(w, response=f'r{n}'))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(count)], env=environment, check=False
    )
    assert done.returncode == -9
    return path.with_name(path.name + "-wal")


def test_no_acknowledged_record_is_lost_when_the_writer_is_killed(path):
    log = killed_while_writing(path)
    assert log.stat().st_size > 0
    whole = verify(path)
    assert whole.rows == 1 + 20 * 4
    assert sum(whole.coverage.scored.values()) == 20


def test_a_torn_log_leaves_a_good_prefix_or_is_refused(path, tmp_path):
    """F56: whatever is cut off the write-ahead log, no half record remains."""
    log = killed_while_writing(path)
    main, tail = path.read_bytes(), log.read_bytes()
    whole = None
    for cut in [*range(1, 600, 97), *range(600, len(tail), 9999)]:
        torn = tmp_path / f"torn-{cut}" / path.name
        torn.parent.mkdir()
        torn.write_bytes(main)
        torn.with_name(log.name).write_bytes(tail[:-cut])
        texts = bodies(torn)  # no witness travelled with it: SQLite's recovery alone
        whole = whole or bodies(path)
        assert texts == whole[: len(texts)]
        assert verify(torn).rows == len(texts)


def test_an_end_that_was_written_and_is_gone_is_noticed(path):
    """A flipped byte makes SQLite drop all that follows; the witness beside the file knows."""
    log = killed_while_writing(path)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(bytes(data))
    with pytest.raises(DamagedLedgerError, match="record 81 had been written"):
        Ledger(path)
    with pytest.raises(DamagedLedgerError, match="write-ahead log was cut or lost"):
        verify(path)
    beside(path).unlink()  # what the message says for a backup put back on purpose
    Ledger(path).close()


def test_a_lost_log_is_noticed(path):
    killed_while_writing(path).unlink()
    with pytest.raises(DamagedLedgerError, match="record 81 had been written"):
        Ledger(path)


@pytest.mark.parametrize("content", [b"hello, I am no database at all", b"SQLite format 3\0" * 9])
def test_a_file_that_is_no_ledger_is_refused_untouched(path, content):
    path.write_bytes(content)
    with pytest.raises(DataError):
        Ledger(path)
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_refused_untouched(path):
    database = sqlite3.connect(path)
    database.executescript("CREATE TABLE cats (name TEXT)")
    database.close()
    with pytest.raises(DataError, match="another program"):
        Ledger(path)


# Meaning


def test_the_state_of_a_key_follows_from_its_rows(path):
    wanted = job("KEY-1")
    key = wanted.expected.key
    with Ledger(path) as ledger:
        book = Book()

        def append(*new):
            for row in ledger.append(new):
                book.add(row)
            return book.state(key)

        assert append(OPENED, wanted.expected.entry()) is State.PENDING
        assert append(intent(wanted)) is State.IN_FLIGHT
        assert append(*failure(wanted, kind=Failure.EMPTY_RESPONSE)) is State.PENDING
        ended = entries.terminal(key, "fake", [Failure.EMPTY_RESPONSE])
        assert append(ended) is State.TERMINAL
        rescue = Entry(kind="run_opened", route="rescue", body={"recovers": "fake"})
        assert append(rescue) is State.TERMINAL
        append(intent(wanted, route="rescue"))
        assert append(*failure(wanted, route="rescue")) is State.RECOVERY
        append(intent(wanted, 2, "rescue"))
        assert append(*accepted(wanted, 2, route="rescue")) is State.SCORED
        assert book.coverage() == Book(ledger.rows()).coverage()


def test_a_changed_expectation_supersedes_the_old_one_and_loses_nothing(path):
    fill(path, 2)
    changed = job("KEY-0", text="a dog")
    with Ledger(path) as ledger:
        ledger.append([OPENED, changed.expected.entry()])
        cover = Book(ledger.rows()).coverage()
    assert (cover.expected, cover.pending, cover.superseded) == (2, 1, 1)
    assert sum(cover.scored.values()) == 1


# Files


def test_exports_hold_every_record(path, tmp_path):
    fill(path, 3)
    export(path, tmp_path / "all.jsonl")
    export(path, tmp_path / "all.parquet")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "all.parquet").to_pylist()
    assert [line["seq"] for line in lines] == list(range(1, 14))
    assert [row["digest"] for row in table] == [line["digest"] for line in lines]
    assert [json.loads(row["body"]) for row in table] == [line["body"] for line in lines]


def test_shards_of_two_machines_merge_without_duplicates(path, tmp_path):
    fill(path, 5)
    other = tmp_path / "other" / path.name
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())  # a copy of the run, continued elsewhere
    fill(other, 5, start=5)
    with Ledger(path) as ledger:
        more = job("KEY-99")
        ledger.append([more.expected.entry(), intent(more)])
        ledger.append(accepted(more, response="r99"))
    both = tmp_path / "both.sqlite"
    merge([path, other], both)
    cover = verify(both).coverage
    assert (cover.expected, sum(cover.scored.values()), cover.sends) == (11, 11, 11)
    again = tmp_path / "again.sqlite"
    assert merge([both, path, other], again) == verify(both).rows


@pytest.mark.parametrize("what", ["score", "attempt", "recovery"])
def test_shards_that_contradict_each_other_are_refused(path, tmp_path, what):
    wanted = job("KEY-1")
    other = tmp_path / "other.sqlite"
    for place, response in ((path, "r1"), (other, "r2")):
        with Ledger(place, clock=lambda: 1.5) as ledger:
            ledger.append([OPENED, wanted.expected.entry(), intent(wanted)])
            if what == "score" or (what == "recovery" and place == path):
                ledger.append(accepted(wanted, response=response))
            elif what == "attempt":
                kind = Failure.SCHEMA if place == path else Failure.LENGTH
                ledger.append(failure(wanted, kind=kind))
            else:
                ledger.append([intent(wanted, 1, "rescue")])
                ledger.append(accepted(wanted, response=response, route="rescue"))
    with pytest.raises(DataError, match="two different records"):
        merge([path, other], tmp_path / "both.sqlite")
    assert not (tmp_path / "both.sqlite").exists()


def test_a_merge_of_different_routes_is_refused(path, tmp_path):
    fill(path, 1)
    other = tmp_path / "other.sqlite"
    with Ledger(other) as ledger:
        ledger.append([replace(OPENED, route="another")])
    with pytest.raises(DataError, match="different routes"):
        merge([path, other], tmp_path / "both.sqlite")
