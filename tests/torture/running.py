"""Runs `delayq torture` as a process, and checks the result."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.support.processes import Process, processes_of

# On a busy machine a run takes much longer.
LONG = pytest.mark.timeout(900)


@contextmanager
def start(folder, *args, **environment):
    process = Process(
        [sys.executable, "-m", "delayq", "torture", *args],
        env=os.environ | {"TMPDIR": str(folder)} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run(folder, *args, **environment):
    """Run to the end; return the exit code, the tally, and standard error."""
    with start(folder, *args, "--json", **environment) as torture:
        out, err = torture.communicate()
    assert out, (torture.returncode, err)
    return torture.returncode, json.loads(out), err


def check(account, faults):
    """Check a run: all planned faults happened, and no guarantee was broken."""
    assert account["right"], (account["problems"], account["failed_rounds"])
    for kind, number in faults.items():
        # There may be too few replies and connections for all planned faults.
        assert account["faults"].get(kind, 0) >= number * (0.9 if kind in {"replies", "cut"} else 1), kind
    assert [account[what] for what in ("lost", "early", "in_two_places", "unexpected")] == [0, 0, 0, 0]
    assert account["duplicates"] == sum(account["explained"].values())
    # A lost reply or a cut connection must not cause a second delivery.
    assert not {"replies", "cut", "flush", "memory", "term"} & set(account["explained"])


def torture(folder, messages, faults, *args):
    named = ",".join(f"{kind}={number}" for kind, number in faults.items())
    code, account, err = run(folder, "--messages", f"{messages}", "--faults", named or "none", *args)
    check(account, faults)
    assert (code, err) == (0, "")
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []
    return account
