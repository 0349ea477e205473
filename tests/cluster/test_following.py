"""A failover while somebody follows the event log, and while a command runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cluster.test_failover import kill_master
from tests.support.faces import Blocking
from tests.support.processes import Process, run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

one_face = pytest.mark.parametrize("face", [Blocking], indirect=True, ids=["blocking"])


@pytest.mark.long
@one_face
def test_command_follows_events_across_a_failover_and_another_waits_for_it(open_queue, deployment, prefix):
    queue = open_queue(deployment, events=True)
    queue.send_delay_msg("hello", 60, id="before")
    delayq = [sys.executable, "-m", "delayq", "--prefix", prefix]
    env = os.environ | {"DELAYQ_URL": deployment.url}
    with Process([*delayq, "events", "reminders", "--follow"], env=env, stdout=subprocess.PIPE, text=True) as following:
        assert " before " in following.stdout.readline()
        deployment_killed, _, _ = kill_master(deployment)
        ended = run([*delayq, "stats", "reminders"], env=env, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        queue.send_delay_msg("hello", 60, id="after")
        assert any(" after " in line for line in following.stdout)
        following.end()
    deployment.rejoin(deployment_killed)
