"""Pulling right after a server has forgotten some scripts."""

from __future__ import annotations

import time

import pytest

from delayq import DelayQueue
from delayq.broker.scripts import script
from delayq.streams import StreamQueue


def test_lease_finds_due_messages_if_only_the_claim_script_is_loaded(redis_url, redis_client):
    with DelayQueue("orders", url=redis_url) as queue:
        queue.send_delay_msg("due")
        redis_client.script_flush()
        redis_client.script_load(script("ready_to_unack").text)
        with queue.lease() as message:
            assert message.payload == "due"


@pytest.mark.parametrize("kind", [DelayQueue, StreamQueue])
def test_lease_counts_from_when_its_claim_was_sent(redis_url, monkeypatch, kind):
    with kind("orders", url=redis_url) as queue:
        (queue.send if kind is StreamQueue else queue.send_delay_msg)("due")
        run = queue.executor.run

        def answer_late(*args, **options):
            replies = run(*args, **options)
            time.sleep(0.15)
            return replies

        monkeypatch.setattr(queue.executor, "run", answer_late)
        (message,) = queue.lease("0.1s")
        assert message.lease_lost
