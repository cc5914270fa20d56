"""The machines that say when: concurrency, breaker, budget; all on a clock that we turn."""

import pytest

from judging.fault_server import route_to
from paiq.judging.limits import Breaker, Budget, Concurrency, Price, text_bytes_of
from paiq.judging.payload import body_of, data_url
from paiq.judging.types import Failure, Usage, failed


class Hand:
    """A clock that moves when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Hand()


def clean_rounds(limit, count, latency=1.0):
    for _ in range(count):
        limit.sent(limit.limit)
        for _ in range(limit.limit):
            limit.answered(latency)


def test_the_first_request_goes_alone_and_clean_rounds_double(clock):
    limit = Concurrency(ceiling=100, clock=clock)
    seen = [limit.limit]
    for _ in range(8):
        clean_rounds(limit, 1)
        seen.append(limit.limit)
    assert seen == [1, 2, 4, 8, 16, 32, 64, 100, 100]


def test_a_refusal_cuts_once_per_cooldown_and_growth_is_slow_after_it(clock):
    limit = Concurrency(ceiling=100, clock=clock)
    clean_rounds(limit, 5)
    for _ in range(20):
        limit.refused()
    assert limit.limit == 25  # 32 * 0.8
    clean_rounds(limit, 3)
    assert limit.limit == 25, "answers during the cooldown argue for nothing"
    clock.now += 16
    clean_rounds(limit, 1)
    assert limit.limit == 26  # 25.6 * 1.05
    limit.refused()
    assert limit.limit == 21
    assert [change.reason for change in limit.history[-3:]] == ["429", "clean round", "429"]


def test_a_long_retry_after_stretches_the_cooldown(clock):
    limit = Concurrency(ceiling=8, clock=clock)
    clean_rounds(limit, 2)
    limit.refused(60.0)
    clock.now += 30
    limit.refused()
    assert limit.limit == 3


def test_a_limit_that_is_not_used_does_not_grow(clock):
    limit = Concurrency(ceiling=100, clock=clock)
    clean_rounds(limit, 3)
    for _ in range(50):
        limit.sent(2)
        limit.answered(1.0)
    assert limit.limit == 8


def test_a_server_that_queues_is_found_by_its_latency(clock):
    """A server of one's own that works on 8 at once: latency grows in proportion beyond that."""
    limit = Concurrency(ceiling=64, by_latency=True, clock=clock)
    seen = []
    for _ in range(60):
        latency = max(1.0, limit.limit / 8)
        clean_rounds(limit, 1, latency)
        clock.now += latency
        seen.append(limit.limit)
    assert min(seen[10:]) >= 8
    assert max(seen[10:]) <= 24


def test_a_server_that_became_slower_for_everyone_is_not_cut_for_ever(clock):
    limit = Concurrency(ceiling=16, by_latency=True, clock=clock)
    clean_rounds(limit, 5, 1.0)
    for _ in range(60):
        clean_rounds(limit, 1, 10.0)
        clock.now += 10.0
    assert limit.limit == 16


def test_a_hosted_judge_is_not_cut_for_its_latency(clock):
    limit = Concurrency(ceiling=32, clock=clock)
    clean_rounds(limit, 4, 1.0)
    clean_rounds(limit, 4, 50.0)
    assert limit.limit == 32


def test_the_breaker_opens_probes_one_at_a_time_and_closes(clock):
    breaker = Breaker(threshold=3, clock=clock)
    for _ in range(3):
        assert breaker.wait() == 0
        breaker.sent()
        breaker.dead()
    assert breaker.is_open
    assert breaker.wait() == 1
    clock.now += 1
    assert breaker.wait() == 0
    breaker.sent()
    assert breaker.wait() == float("inf"), "one probe at a time"
    breaker.dead()
    assert breaker.wait() == 2
    clock.now += 2
    breaker.sent()
    assert breaker.open_for() == 3
    breaker.alive()
    assert not breaker.is_open
    assert breaker.wait() == 0


def test_stragglers_do_not_stretch_an_outage(clock):
    breaker = Breaker(threshold=2, clock=clock)
    for _ in range(30):
        breaker.dead()
    assert breaker.wait() == 1


def test_waits_of_the_breaker_end_at_a_minute(clock):
    breaker = Breaker(threshold=1, clock=clock)
    waits = []
    breaker.dead()
    for _ in range(10):
        waits.append(breaker.wait())
        clock.now += waits[-1]
        breaker.sent()
        breaker.dead()
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_failures_with_an_answer_between_them_open_nothing(clock):
    breaker = Breaker(threshold=3, clock=clock)
    for _ in range(20):
        breaker.dead()
        breaker.dead()
        breaker.alive()
    assert not breaker.is_open


@pytest.fixture
def price():
    return Price.of(route_to("http://127.0.0.1:9/v1"))


def test_the_budget_counts_what_is_in_flight_at_its_bound(price):
    bound = price.bound(1000)
    assert bound == pytest.approx((1000 + 1445) * 2.5e-6 + 512 * 10e-6)
    budget = Budget(dollars=2.5 * bound, price=price)
    assert budget.fits(1000)
    budget.reserve(1000)
    budget.reserve(1000)
    assert not budget.fits(1000)
    usage = Usage(prompt_tokens=100, completion_tokens=10)
    budget.settle(1000, failed(Failure.SCHEMA, "", usage=usage))
    assert budget.spent == pytest.approx(100 * 2.5e-6 + 10 * 10e-6)
    assert budget.fits(1000)


def test_a_send_that_may_have_been_charged_counts_at_its_bound(price):
    budget = Budget(dollars=1.0, price=price)
    for failure, cost in ((Failure.READ_TIMEOUT, price.bound(50)), (Failure.RATE_LIMITED, 0.0)):
        before = budget.spent
        budget.reserve(50)
        budget.settle(50, failed(failure, ""))
        assert budget.spent - before == pytest.approx(cost)
    assert budget.reserved == pytest.approx(0)


def test_the_text_of_a_body_is_counted_without_its_picture():
    route = route_to("http://127.0.0.1:9/v1")
    small = body_of(route, "say", data_url("image/png", b"x"))
    large = body_of(route, "say", data_url("image/png", bytes(100_000)))
    assert text_bytes_of(small) == text_bytes_of(large)
    assert text_bytes_of(b'{"no": "picture"}') == 17
