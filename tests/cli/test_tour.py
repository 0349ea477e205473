"""`delayq tour`: each step runs, and nothing is left behind."""

from __future__ import annotations

import os
import sys

import pytest

from delayq.cli.admin.tour import STEPS
from tests.cli.conftest import terminal
from tests.support.processes import Process, run


def test_tour_runs_each_of_its_commands(tmp_path):
    command = [sys.executable, "-m", "delayq", "tour"]
    env = {**os.environ, "DELAYQ_URL": "redis://127.0.0.1:1"}
    out = run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    shown = [line for line in out.splitlines() if line.startswith("$ ")]
    assert shown == [f"$ {command}" for step in STEPS for command in step.commands]
    assert [line for line in out.splitlines() if line.startswith("shipped")] == [
        "shipped to Ada",
        "shipped to Cem",
        "shipped to Bo",
    ]
    assert "acked        3" in out
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_it_waits_and_q_ends_it(tmp_path):
    with terminal() as (keyboard, screen):
        command = [sys.executable, "-m", "delayq", "tour"]
        tour = Process(command, cwd=tmp_path, stdin=screen, stdout=screen, stderr=screen)
        seen = read_until(keyboard, "q ends the tour")
        assert "sent to" not in seen
        os.write(keyboard, b"\n")
        assert "sent to orders" in read_until(keyboard, "q ends the tour")
        os.write(keyboard, b"q\n")
        assert tour.wait(60) == 0


def read_until(terminal: int, text: str) -> str:
    """Return what a program writes to a terminal, up to a text."""
    seen = b""
    while text.encode() not in seen:
        seen += os.read(terminal, 4096)
    return seen.decode()


def test_a_tour_without_its_server_says_what_to_install(cli, monkeypatch):
    monkeypatch.setattr("delayq.cli.admin.tour.find_spec", lambda name: None)
    ended = cli("tour")
    assert (ended.code, ended.line) == (1, "the tour needs the package fakeredis: pip install 'delayq[embedded]'")


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.text[:20])
def test_steps_are_short(step):
    assert len(step.text) <= 120
    assert all(len(command) <= 70 for command in step.commands)
