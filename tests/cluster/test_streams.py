"""A stream queue and the relay on every deployment."""

from __future__ import annotations

import pytest

from delayq import ConfigurationError, DelayQueue, NewMessage
from delayq.streams import AsyncRelay, Relay, StreamQueue
from tests.support.deployments import RedisCluster


def test_stream_queue_delivers_messages(deployment, prefix):
    with StreamQueue(f"{prefix}-tasks", url=deployment.url) as tasks:
        tasks.send_many([NewMessage(n, id=f"id{n}") for n in range(5)])
        with tasks.lease(n=5, block=10) as messages:
            assert [message.payload for message in messages] == list(range(5))
        assert tasks.counts().living == 0


def test_relay_moves_due_messages(deployment, prefix):
    with DelayQueue("reminders", url=deployment.url, prefix=prefix) as queue:
        queue.send_many(range(20))
        with StreamQueue(f"{prefix}.{{reminders}}", url=deployment.url) as tasks:
            assert Relay(queue, tasks).run(burst=True) == 20
            with tasks.lease(n=20, block=10) as messages:
                assert sorted(message.payload for message in messages) == list(range(20))


@pytest.mark.parametrize("deployment", ["redis_cluster"], indirect=True)
def test_a_relay_to_another_node_is_refused(deployment, open_queue):
    assert isinstance(deployment, RedisCluster)
    queue = open_queue(deployment)
    kind = Relay if isinstance(queue, DelayQueue) else AsyncRelay
    with pytest.raises(ConfigurationError, match="share a hash tag"):
        kind(getattr(queue, "_subject", queue), "tasks")
