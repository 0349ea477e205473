"""What differs from one version of Redis to another, and is the same to those who use a work queue."""

from __future__ import annotations

import pytest

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
