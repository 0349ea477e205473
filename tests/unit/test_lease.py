"""Pulling right after a server has forgotten some scripts."""

from __future__ import annotations

from delayq import DelayQueue
from delayq.script import script


def test_what_is_due_is_found_though_the_server_knows_only_the_claim(redis_url, redis_client):
    with DelayQueue("orders", url=redis_url) as queue:
        queue.send_delay_msg("due")
        redis_client.script_flush()
        redis_client.script_load(script("ready_to_unack").text)
        with queue.lease() as message:
            assert message.payload == "due"
