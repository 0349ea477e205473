"""A queue is examined and repaired on every deployment."""

from __future__ import annotations

from contextlib import closing

import pytest

from delayq.broker.keys import Keys
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import open_executor
from delayq.options import read_settings


@pytest.mark.long
def test_message_without_a_place_is_repaired_and_delivered(deployment, open_queue, prefix):
    queue = open_queue(deployment)
    queue.send_delay_msg("hello", 60, id="m")
    with closing(open_executor({"url": deployment.url}, read_settings({}))) as executor:
        assert executor.call(RedisCommand(("ZREM", Keys.of(prefix, queue.name).pending, "m"), int)) == 1

    found = {finding.kind: finding.mended for finding in queue.repair(deep=True).findings}

    assert found.pop("payload without place") == 1
    assert set(found) <= {"server"}
    with queue.lease(block=10) as message:
        assert message.payload == "hello"
