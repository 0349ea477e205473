"""Logs of a consumer: the same records with the same attributes for every engine."""

from __future__ import annotations

import logging

import pytest

from tests.conformance.engines import ENGINES, SHORT
from tests.support.waiting import wait_until


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """An engine with a callback consumer."""
    return str(request.param)


consuming = pytest.mark.parametrize("engine", ["delay", "streams"], indirect=True)


def records(caplog, text):
    return [record for record in caplog.records if text in record.getMessage() and record.name.startswith("delayq.")]


@consuming
def test_failed_attempt_is_logged_with_its_message_id_and_exception(hire, caplog):
    worker = hire(nack_delay=0)
    worker.send(b"x", id="m1")

    def fail_once(message):
        if message.attempt == 1:
            raise ValueError("no such user")

    worker.consume(fail_once)
    wait_until(lambda: worker.counts() == (0, 0))
    (record,) = records(caplog, "failed at attempt")
    assert (record.levelno, record.name) == (logging.WARNING, "delayq.consumer")
    assert (record.id, record.attempt) == ("m1", 1)
    assert isinstance(record.exc_info[1], ValueError)
    assert "no such user" not in record.getMessage()


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_expired_lease_is_logged_once_with_the_worker_that_was_lost(engine, hire, caplog):
    keeps_consumers = engine != "workqueue"  # which has neither retries nor a name of whose lease has expired
    lost, another = (hire(default_retries=1) if keeps_consumers else hire() for _ in range(2))
    lost.send(b"x", id="m1")
    consumers = []
    for worker in (lost, another):
        wait_until(lambda worker=worker: worker.recover() or worker.take(SHORT))
        if keeps_consumers:
            consumers += [one.consumer for one in lost.do(lambda: lost.queue.list("active")).messages]
    wait_until(lambda: lost.recover() or (lost.take(), len(records(caplog, "its lease expired")) == 2)[1])

    first, second = records(caplog, "its lease expired, as ")
    assert [one.id for one in (first, second)] == ["m1", "m1"]
    assert [one.levelno for one in (first, second)] == [
        logging.WARNING,
        logging.ERROR if keeps_consumers else logging.WARNING,
    ]
    if keeps_consumers:
        assert [one.consumer for one in (first, second)] == consumers
        assert all(f"worker {one.consumer} was lost" in one.getMessage() for one in (first, second))


@consuming
def test_callback_that_takes_too_long_is_logged_once_with_its_message_id(hire, caplog):
    worker = hire(lease=0.3, max_consume_duration=0.3, nack_delay=30)
    worker.send(b"x", id="m1")
    ended = []

    def stay(message):
        wait_until(lambda: records(caplog, "the callback took longer than"))
        ended.append(message.id)

    worker.consume(stay)
    wait_until(lambda: ended)
    (record,) = records(caplog, "the callback took longer than")
    assert (record.levelno, record.id) == (logging.WARNING, "m1")
