"""`delayq archive --follow` as a service: it ends by a signal, with what it has archived."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from delayq import DelayQueue
from tests.support.processes import Process
from tests.support.waiting import wait_until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_its_regular_end(redis_url, tmp_path, number):
    with DelayQueue("visits", url=redis_url, events=True) as queue:
        queue.send_delay_msg("x", delay="1h")
        command = [sys.executable, "-m", "delayq", "archive", "visits", "archive", "--follow"]
        environment = {**os.environ, "DELAYQ_URL": redis_url}
        with (
            (tmp_path / "err").open("wb") as err,
            Process(command, env=environment, cwd=tmp_path, stderr=err) as process,
        ):
            wait_until(lambda: list((tmp_path / "archive").rglob("*.parquet")))
            process.send_signal(number)
            assert process.wait(60) == 0
    (line,) = (tmp_path / "err").read_text().splitlines()
    assert line.startswith("archived 1 events in archive")
