"""The number of partitions changes in a Cluster: no call uses keys of two partitions."""

from __future__ import annotations

import pytest

from delayq import DelayQueue, Schedule
from delayq.queue.placing.layout import names_of
from delayq.queue.placing.repartitioning import change_partitions, read_partitions

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


def test_a_queue_grows_and_shrinks_over_the_nodes(redis_cluster, prefix):
    with DelayQueue("reminders", url=redis_cluster.url, prefix=prefix) as queue:
        queue.send_many(range(600), delay=3600)
        queue.send("dead", id="dead", delay=3600)
        queue.kill("dead")
        queue.schedules.add_many([Schedule(f"nightly-{n}", every=86_400) for n in range(20)])
        for partitions in (8, 3, 1):
            queue.executor.perform(change_partitions(prefix, "reminders", partitions))
            stage, states = queue.executor.perform(read_partitions(prefix, "reminders"))
            assert [one.name for one in states] == names_of("reminders", partitions)
            assert (stage.partitions, stage.moving_from) == (partitions, None)
            assert sum(one.messages for one in states) == 600
            assert min(one.messages for one in states) > 30
            assert sum(one.dead for one in states) == 1
        assert len(queue.schedules.list()) == 20
