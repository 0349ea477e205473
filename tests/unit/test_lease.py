"""Pulling right after a server has forgotten some scripts."""

from __future__ import annotations

from delayq import DelayQueue
from delayq.broker.scripts import script


def test_lease_finds_due_messages_if_only_the_claim_script_is_loaded(redis_url, redis_client):
    with DelayQueue("orders", url=redis_url) as queue:
        queue.send_delay_msg("due")
        redis_client.script_flush()
        redis_client.script_load(script("ready_to_unack").text)
        with queue.lease() as message:
            assert message.payload == "due"
