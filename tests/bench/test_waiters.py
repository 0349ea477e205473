"""`scripts/measure/waiters.py`: processes that wait for results, and say whether they got the right ones."""

import sys
from subprocess import PIPE

import pytest
from measure.awaiting import PROGRAM

from delayq import DelayQueue, NewMessage
from tests.support.processes import Process
from tests.support.waiting import wait_until

PROCESSES, EACH = 2, 3


@pytest.mark.parametrize("wrong", [None, 4])
def test_processes_get_their_results_and_a_wrong_one_is_reported(redis_url, redis_client, wrong):
    with DelayQueue("reminders", url=redis_url) as queue:
        queue.callback(lambda message: -1 if message.payload == wrong else message.payload)
        queue.send_many([NewMessage(n, id=f"r{n}", retention="1h") for n in range(PROCESSES * EACH)])
        words = [redis_url, "reminders", str(PROCESSES), str(EACH)]
        with Process([sys.executable, PROGRAM, *words], stderr=PIPE, text=True) as waiters:
            wait_until(lambda: redis_client.info("clients")["blocked_clients"] == PROCESSES)
            queue.run(burst=True)
            _, errors = waiters.communicate()
    assert waiters.returncode == (0 if wrong is None else 1)
    assert errors.count("wrong results of range(0, 6, 2)") == (wrong is not None)
