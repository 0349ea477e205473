"""Differences between versions of Redis that users of a work queue do not notice."""

from __future__ import annotations

import asyncio

import pytest
import redis

from delayq.workqueue import AsyncWorkQueue, Item, WorkQueue
from delayq.workqueue.calls import ItemClaimReply, WorkQueueCalls
from delayq.workqueue.keys import KeyPrefix, WorkQueueKeys
from delayq.workqueue.queue import LookAhead, lease


@pytest.mark.parametrize("timeout", [1e-9, 0.0004, 0.001, 0.0014])
def test_no_wait_is_so_short_that_redis_6_2_waits_for_ever(timeout):
    calls = WorkQueueCalls(WorkQueueKeys(KeyPrefix("jobs")))
    operation = lease(calls, "a-session", LookAhead(), 1000, block=True, timeout=3600, longest=timeout)
    next(operation)
    (waiting,) = operation.send([ItemClaimReply(None, [])])
    assert waiting.args[0] == "BLMOVE"
    assert float(waiting.args[-1]) == 0.002


@pytest.mark.parametrize("timeout", [0.0001, 0.001])
def test_a_short_wait_ends(jobs, timeout):
    assert jobs.lease(10, timeout=timeout) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "@user_script:10: @user_script: 10: -OOM command not allowed when used memory > 'maxmemory'.",
            "OutOfMemoryError",
        ),
        ("@user_script:8: WRONGTYPE Operation against a key holding the wrong kind of value", "ResponseError"),
    ],
)
def test_a_full_redis_6_2_raises_the_same_error_as_later_ones(text, kind):
    reply_error = redis.ResponseError(
        f"Error running script (call to f_c5d00661721d7125d7f8f76147656990399789cf): {text}"
    )

    class Client:
        def execute_command(self, *args, **options):
            raise reply_error

    class AsyncClient:
        async def execute_command(self, *args, **options):
            raise reply_error

    for call in (
        lambda: WorkQueue("jobs").add_item(Client(), Item("x")),
        lambda: asyncio.run(AsyncWorkQueue("jobs").add_item(AsyncClient(), Item("x"))),
    ):
        with pytest.raises(redis.ResponseError, match=r"^Error running script") as caught:
            call()
        assert type(caught.value).__name__ == kind
