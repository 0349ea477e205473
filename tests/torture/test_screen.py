"""Output of a run, and sums of its tally."""

import io
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from delayq.queue.inspecting.counts import Counts
from delayq.testing.torture.history import CallRecord, FaultRecord, HeaderRecord, Recorder, ReplyRecord
from delayq.testing.torture.round_plan import PlannedFault, RoundPlan
from delayq.testing.torture.rules.checker import check_lines
from delayq.testing.torture.run_tally import RoundTally, stalls_and_recovery, summary_lines, tally_rounds
from delayq.testing.torture.torture_screen import RoundProgress, TortureScreen

PLAN = RoundPlan(round=2, messages=1000, seconds=10.0, batch=10, aof="always", faults=[PlannedFault(1.0, "kill")])


def progress(elapsed, sent):
    counts = Counts(pending=7, ready=0, active=3, backoff=0, retry=0, garbage=0, dead=1, overdue=0)
    stats = SimpleNamespace(counts=counts, totals={"sent": sent})
    return RoundProgress(PLAN, elapsed, stats, 4, {"kill": 1}, "faults")


def verdict(**changed):
    return msgspec.structs.replace(check_lines([("p", HeaderRecord(at=1, process="p", pid=1))]), **changed)


def round_account(**changed):
    defaults = {
        "round": 2,
        "seconds": 12.0,
        "faults": {"kill": 1},
        "stalls": 1,
        "recovery": 0.5,
        "problems": [],
        "verdict": verdict(messages=990, deliveries=1100, duplicates=3, explained={"kill": 3}),
    }
    return RoundTally(**{**defaults, **changed})


@pytest.fixture
def shown():
    return io.StringIO()


def screen(shown, *, terminal):
    return TortureScreen(Console(file=shown, force_terminal=terminal, width=100, color_system=None))


def test_round_is_one_line_without_a_terminal(shown):
    with screen(shown, terminal=False) as made:
        made.begin(PLAN, 3)
        made.fault(1.2, PLAN.faults[0], "worker-1")
        made.refresh(progress(1.0, 100))
        made.end(round_account())
    assert shown.getvalue().splitlines() == [
        "round 2 of 3: 1,000 messages in 10 s, 1 faults, AOF always",
        "round 2: right; 990 messages, 1,100 deliveries, 3 duplicates, 12 s",
    ]


def test_terminal_shows_faults_and_the_queue(shown, monkeypatch):
    monkeypatch.setattr(shown, "isatty", lambda: True)
    with screen(shown, terminal=True) as made:
        made.begin(PLAN, 3)
        made.fault(1.2, PLAN.faults[0], "worker-1")
        made.refresh(progress(1.0, 100))
        made.refresh(progress(2.0, 1100))
    text = shown.getvalue()
    assert "1.20 s  kill        worker-1" in text
    assert "round 2 of 3, faults, 2 of 10 s" in text
    assert "sent 300" in text  # smoothed
    assert "pending 7" in text


def test_failed_and_interrupted_rounds_are_reported(shown):
    made = screen(shown, terminal=False)
    made.end(round_account(problems=["worker-1 ended with 1"], verdict=verdict(broken={"leases": 2}, right=False)))
    made.end(round_account(verdict=None))
    failed, interrupted = shown.getvalue().splitlines()
    assert failed.startswith("round 2: WRONG (leases 2, worker-1 ended with 1); ")
    assert interrupted == "round 2: interrupted"


def test_tally_adds_up_rounds():
    wrong = round_account(
        kept="/there", problems=["ended"], verdict=verdict(broken={"leases": 2, "doubt": 1}, right=False)
    )
    tally = tally_rounds("delayq torture --seed 1", [round_account(), wrong], 24.0, interrupted=False)
    assert (tally.messages, tally.faults, tally.stalls, tally.slowest_recovery) == (990, {"kill": 2}, 2, 0.5)
    assert (tally.lost, tally.in_two_places, tally.unexpected, tally.right) == (0, 2, 2, False)
    text = "\n".join(summary_lines(tally))
    assert "round 2 failed; histories: /there\n  repeat: delayq torture --seed 1 --round 2\n" in text
    assert "lost 0, early 0, in two places 2, unexpected 2" in text


def test_stalls_and_recovery_are_computed_from_the_histories(tmp_path):
    file = tmp_path / "p.jsonl"
    with Recorder(file, "p") as recorder:
        recorder.write(CallRecord(at=1_000_000, call=1, op="claim"))
        recorder.write(FaultRecord(at=1_100_000, until=2_000_000, kind="server-kill"))
        recorder.write(ReplyRecord(at=2_300_000, call=1))
        recorder.write(CallRecord(at=2_400_000, call=2, op="claim"))
        recorder.write(ReplyRecord(at=9_000_000, call=2))
        recorder.write(FaultRecord(at=3_000_000, until=5_000_000, kind="stall", process="w"))
        recorder.write(FaultRecord(at=6_000_000, until=8_000_000, kind="stall", process="w"))
        recorder.write(FaultRecord(at=6_100_000, until=7_900_000, kind="stop", process="w"))
    assert stalls_and_recovery([file]) == (1, 0.3)
