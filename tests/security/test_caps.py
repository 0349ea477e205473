"""What may not grow without bound is bounded: at the limit it is taken, beyond it refused, and nothing is stored."""

from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, DelayQueue, NewMessage, PayloadTooLargeError, QueueFullError
from delayq.broker.batches import BATCH
from delayq.broker.scripts import MAX_IDS

HUNDRED_YEARS = timedelta(days=36_600)
"""With a leap day in each, so that it is a hundred years whenever it begins."""
HEADERS_ROOM = 16_384 - len('{"a":""}')

CAPS = {
    "payload": (lambda q, n: q.send_delay_msg("x" * (1000 - 2 + n)), PayloadTooLargeError),
    "headers": (lambda q, n: q.send_delay_msg(1, headers={"a": "x" * (HEADERS_ROOM + n)}), ConfigurationError),
    "id": (lambda q, n: q.send_delay_msg(1, id="x" * (128 + n)), ConfigurationError),
    "run": (lambda q, n: q.send_many([1], run="x" * (128 + n)), ConfigurationError),
    "retries": (lambda q, n: q.send_delay_msg(1, retries=1_000_000 + n), ConfigurationError),
    "delay": (lambda q, n: q.send_delay_msg(1, HUNDRED_YEARS + timedelta(milliseconds=n)), ConfigurationError),
    "time": (
        lambda q, n: q.send_schedule_msg(1, datetime(2199, 12, 31, 23, 59, 59, tzinfo=UTC) + timedelta(seconds=n)),
        ConfigurationError,
    ),
    "queue": (lambda q, n: q.send_many(range(10 + n)), QueueFullError),
}


@pytest.fixture
def queue(redis_url):
    with DelayQueue("capped", url=redis_url, max_payload=1000, max_length=10) as made:
        yield made


@pytest.mark.parametrize("cap", CAPS)
def test_limit_is_exact(cap, queue, redis_client):
    act, error = CAPS[cap]
    act(queue, 0)
    assert queue.counts().living == (10 if cap == "queue" else 1)
    queue.purge()
    with pytest.raises(error):
        act(queue, 1)
    assert queue.counts().living == 0
    assert redis_client.hlen("delayq:{capped}:messages") == 0


@pytest.mark.parametrize("name", ["prefix", "queue"])
def test_a_name_has_at_most_128_characters(name, redis_url):
    for length in (128, 129):
        names = {"prefix": "p", "queue": "q"} | {name: "x" * length}
        if length == 128:
            DelayQueue(names["queue"], url=redis_url, prefix=names["prefix"]).close()
        else:
            with pytest.raises(ConfigurationError):
                DelayQueue(names["queue"], url=redis_url, prefix=names["prefix"])


def test_no_call_carries_more_than_a_thousand_ids(redis_url, monkeypatch):
    carried = []
    with DelayQueue("batches", url=redis_url) as queue:
        call = queue.context.calls.send
        monkeypatch.setattr(
            type(queue.context.calls),
            "send",
            lambda self, messages, **options: carried.append(len(messages.ids)) or call(messages, **options),
        )
        assert len(queue.send_many(range(2 * BATCH + 1)).new) == 2 * BATCH + 1
    assert carried == [BATCH, BATCH, 1]
    assert max(carried) <= MAX_IDS


def test_dead_letter_is_limited_by_number_and_age(redis_url):
    with DelayQueue("dead", url=redis_url, dead_max=3, callback=lambda message: False, default_retries=0) as queue:
        queue.send_many([NewMessage(n, id=str(n)) for n in range(5)])
        queue.run(burst=True)
        assert queue.counts().dead == 3
        assert queue.stats().totals["trimmed"] == 2


def test_stored_error_is_truncated_to_2048_characters(redis_url):
    with DelayQueue("errors", url=redis_url) as queue:
        queue.send_delay_msg(1, id="m")
        with queue.lease() as message:
            message.nack(error="x" * 5000, delay="1h")
        assert queue.get("m").error == "x" * 2048
