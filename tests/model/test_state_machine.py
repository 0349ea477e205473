"""Random calls, on the embedded Redis and on a real one, do what the model says, and keep each id in one place."""

from __future__ import annotations

from collections import Counter

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from delayq.config import read_settings
from delayq.executor import open_executor
from tests.model.machine import QueueMachine


@pytest.fixture(params=["embedded", "redis"])
def executor(request):
    url = "memory://model" if request.param == "embedded" else request.getfixturevalue("redis_url")
    executor = open_executor({"url": url}, read_settings({}))
    yield executor
    executor.close()


STEPS = 100


@pytest.mark.parametrize("part", range(2))
def test_x(executor, part):
    reached = Counter()
    import time
    t=time.perf_counter()
    run_state_machine_as_test(lambda: QueueMachine(executor, reached), settings=hypothesis.settings(max_examples=100, stateful_step_count=STEPS, deadline=None, database=None, print_blob=True, report_multiple_bugs=False, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink)))
    t=time.perf_counter()-t
    for k,v in sorted(reached.items()): print(v,k)
    print(t, sum(reached.values()))
