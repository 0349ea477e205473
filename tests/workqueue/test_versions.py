"""What differs from one version of Redis to another, and is the same to those who use a work queue."""

from __future__ import annotations

import asyncio

import pytest
import redis

from delayq.workqueue import AsyncWorkQueue, Item, WorkQueue
from delayq.workqueue.calls import Claimed
from delayq.workqueue.keys import KeyPrefix, Keys
from delayq.workqueue.leasing import Seen, lease


@pytest.mark.parametrize("timeout", [1e-9, 0.0004, 0.001, 0.0014])
def test_a_wait_is_never_so_short_that_redis_6_2_waits_for_ever(timeout):
    work = lease(Keys(KeyPrefix("jobs")), "a-session", Seen(), 1000, block=True, timeout=3600, longest=timeout)
    next(work)
    waiting = work.send(Claimed(None, []))
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
def test_a_full_redis_6_2_is_told_as_later_ones_are(text, kind):
    told = redis.ResponseError(f"Error running script (call to f_c5d00661721d7125d7f8f76147656990399789cf): {text}")

    class Client:
        def execute_command(self, *args, **options):
            raise told

    class AsyncClient:
        async def execute_command(self, *args, **options):
            raise told

    for call in (
        lambda: WorkQueue("jobs").add_item(Client(), Item("x")),
        lambda: asyncio.run(AsyncWorkQueue("jobs").add_item(AsyncClient(), Item("x"))),
    ):
        with pytest.raises(redis.ResponseError, match=r"^Error running script") as caught:
            call()
        assert type(caught.value).__name__ == kind
