"""What the wire can do to a request: F01-F14 and F38. One test, one fault, judged by the server."""

import asyncio
import contextlib
import gzip
import json
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager

import pytest

from judging.fault_server import CANARY, check_invariants, classes, job, jobs, run, scores
from paiq.bench.fault_server import (
    FaultServer,
    answer,
    by_mark,
    close,
    completion,
    drip,
    flood,
    hang,
    in_turn,
    raw,
    reset,
    status,
)

ONE = job("KEY-1")


def ends_after(tmp_path, *actions, **settings):
    """Classes of all attempts at one key when the server acts like this, in turn."""
    with FaultServer(in_turn(*actions)) as server:
        summary = run(tmp_path, server, [ONE], **settings)
        check_invariants(tmp_path, server.record)
        assert len(server.sends()) == 1, "every attempt must send the same bytes"
    return classes(tmp_path, ONE), summary


@contextmanager
def unanswered_port():
    """A port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


@contextmanager
def full_port():
    """A port whose queue of waiting connections is full: connecting hangs."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = []
        for _ in range(4):
            wire = socket.socket()
            wire.setblocking(False)
            wire.connect_ex(listening.getsockname())
            waiting.append(wire)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        for wire in waiting:
            wire.close()


def test_f01_a_refused_connection_is_tried_three_times_and_ends(tmp_path):
    with unanswered_port() as url:
        summary = run(tmp_path, url, [ONE])
    assert classes(tmp_path, ONE) == ["connection"] * 3
    assert summary.coverage.terminal == {"connection": 1}
    assert summary.exit_code == 1


def test_f02_a_connection_that_hangs_is_given_up_in_time(tmp_path):
    with full_port() as url:
        summary = run(tmp_path, url, [ONE], connect_seconds=0.1, attempts=1)
    assert summary.coverage.terminal == {"connect_timeout": 1}


def test_f03_a_name_that_does_not_resolve_is_a_connection_failure(tmp_path):
    summary = run(tmp_path, "https://judge.invalid/v1", [ONE], attempts=1)
    assert summary.coverage.terminal == {"connection": 1}


@pytest.mark.parametrize(
    ("action", "name"),
    [
        pytest.param(reset(), "connection", id="f04"),
        pytest.param(close(), "protocol", id="f05"),
        pytest.param(raw(b"garbage\r\n\r\n"), "protocol", id="f06"),
        pytest.param(
            raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}"), "protocol", id="f07"
        ),
        pytest.param(
            raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"),
            "protocol",
            id="f08",
        ),
    ],
)
def test_f04_to_f08_a_broken_exchange_is_an_attempt_and_is_tried_again(tmp_path, action, name):
    found, summary = ends_after(tmp_path, action, answer())
    assert found == [name, "accepted"]
    assert (summary.sent, summary.retried, summary.exit_code) == (2, 1, 0)


def test_f07_a_body_cut_short_is_never_read_though_the_part_is_a_verdict(tmp_path):
    def cut(exchange):
        body = json.dumps(completion(exchange.seen)).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(body) + 1)
        return raw(head + body)(exchange)

    found, _ = ends_after(tmp_path, cut, attempts=1)
    assert found == ["protocol"]


def test_f09_a_slow_drip_ends_at_the_total_deadline(tmp_path):
    action = drip(every=0.05, times=1000)
    found, _ = ends_after(tmp_path, action, answer(), read_seconds=0.2, total_seconds=0.3)
    assert found == ["total_deadline", "accepted"]


def test_f10_a_silent_server_costs_one_attempt_and_its_slot_is_free_again(tmp_path):
    with FaultServer(by_mark({"KEY-0": in_turn(hang(2))})) as server:
        summary = run(tmp_path, server, jobs(6), concurrency=1, read_seconds=0.15, attempts=1)
        check_invariants(tmp_path, server.record)
    assert summary.coverage.terminal == {"read_timeout": 1}
    assert summary.coverage.scored == {"gpt-4o": 5}


def test_f11_a_late_answer_gives_no_second_result(tmp_path):
    with FaultServer(in_turn(answer(delay=0.3), answer())) as server:
        summary = run(tmp_path, server, [ONE], read_seconds=0.1)
        asyncio.run(asyncio.sleep(0.35))  # the ghost finishes now
        assert len(server.record) == 2
        check_invariants(tmp_path, server.record)
    assert classes(tmp_path, ONE) == ["read_timeout", "accepted"]
    assert summary.coverage.sends == 2


def test_f12_a_connection_closed_while_idle_costs_no_unrecorded_send(tmp_path):
    async def answer_then_leave(exchange):
        await answer()(exchange)
        exchange.keep = False

    with FaultServer(in_turn(answer_then_leave)) as server:
        summary = run(tmp_path, server, jobs(12), concurrency=2)
        assert summary.sent == len(server.record)
        check_invariants(tmp_path, server.record)
    assert summary.exit_code == 0


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_f13_a_redirect_is_not_followed_and_the_key_stays_home(tmp_path, code):
    with FaultServer() as other:
        action = status(code, b"", ("location", other.url))
        found, summary = ends_after(tmp_path, action)
        assert other.record == []
    assert found == ["rejected_request"]
    assert summary.coverage.terminal == {"rejected_request": 1}


def test_f14_interim_responses_and_old_http_do_not_hang(tmp_path):
    def interim(exchange):
        body = json.dumps(completion(exchange.seen)).encode()
        head = b"HTTP/1.1 100 Continue\r\n\r\n" * 2
        return raw(head + b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)(
            exchange
        )

    def old(exchange):
        body = json.dumps(completion(exchange.seen)).encode()
        return raw(b"HTTP/1.0 200 OK\r\n\r\n" + body)(exchange)

    plan = by_mark({"KEY-0": in_turn(interim), "KEY-1": in_turn(old)})
    with FaultServer(plan) as server:
        summary = run(tmp_path, server, jobs(2))
    assert (summary.sent, summary.exit_code) == (2, 0)


def test_f38_a_flood_is_cut_off_at_the_size_limit(tmp_path):
    found, _ = ends_after(tmp_path, flood(30), answer(), total_seconds=5.0)
    assert found == ["too_large", "accepted"]


def test_f38_a_packed_reply_that_nobody_asked_for_is_not_unpacked(tmp_path):
    bomb = gzip.compress(bytes(1 << 20))
    action = status(200, bomb, ("content-encoding", "gzip"))
    found, _ = ends_after(tmp_path, action, answer())
    assert found == ["protocol", "accepted"]


@pytest.mark.parametrize(
    "body", [b"\x00" * 50, b"\xff\xfe{}", b'{"id": "\\ud800", "model": "gpt-4o", "choices": []}']
)
def test_f38_bytes_that_are_no_text_leave_the_ledger_valid(tmp_path, body):
    found, summary = ends_after(tmp_path, status(200, body), answer())
    assert found[1] == "accepted"
    assert summary.exit_code == 0
    for line in scores(tmp_path).decode("utf-8").splitlines():
        json.loads(line)


def test_f42_every_attempt_sends_the_same_bytes_and_headers(tmp_path):
    with FaultServer(in_turn(status(500), status(503), answer())) as server:
        run(tmp_path, server, [ONE])
        assert len(server.record) == 3
        assert len({seen.body_hash for seen in server.record}) == 1
        assert server.record[0].headers == server.record[1].headers == server.record[2].headers
        assert server.record[0].headers["authorization"] == "..."
        assert CANARY not in str(server.record)


def test_the_environment_cannot_put_a_proxy_in_between(tmp_path, monkeypatch):
    with FaultServer() as proxy, FaultServer() as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "")
        run(tmp_path, server, jobs(2))
        assert proxy.record == []
        assert len(server.record) == 2


def test_the_reset_of_the_fault_server_is_a_real_one():
    with FaultServer(in_turn(reset())) as server, socket.socket() as wire:
        wire.connect(("127.0.0.1", server.port))
        wire.sendall(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            wire.recv(10)


@pytest.fixture
def stranger(tmp_path):
    """A TLS server whose certificate nobody vouches for, and what it was told in confidence."""
    if not shutil.which("openssl"):
        pytest.skip("a certificate is made with openssl, which is not installed")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    name = "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1,DNS:localhost"
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(
        ["openssl", *words.split(), *name.split(), *files], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    told = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    wire, _ = listening.accept()
                    with (
                        contextlib.suppress(OSError),
                        wire,
                        context.wrap_socket(wire, server_side=True) as channel,
                    ):
                        told.append(channel.recv(100))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], told
        listening.shutdown(socket.SHUT_RDWR)  # wakes the accept
    thread.join(6)


def test_nobody_can_switch_off_the_check_of_certificates(tmp_path, stranger, monkeypatch):
    port, told = stranger
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_unverified_context)
    monkeypatch.setenv("PYTHONHTTPSVERIFY", "0")
    summary = run(tmp_path, f"https://localhost:{port}/v1", [ONE], attempts=1)
    assert summary.coverage.terminal == {"connection": 1}
    assert [words for words in told if words] == [], "the key went to a stranger"
