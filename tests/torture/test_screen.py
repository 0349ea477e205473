"""What a run shows, and how its account adds up."""

import io

import msgspec
import pytest
from rich.console import Console

from delayq.torture.account import RoundAccount, add_up, look_back, statement
from delayq.torture.checker import judge
from delayq.torture.engine import Looked
from delayq.torture.history import Answer, Fault, Invoke, Opened, Recorder
from delayq.torture.plan import Plan, Planned
from delayq.torture.round import Progress
from delayq.torture.screen import Screen

PLAN = Plan(round=2, messages=1000, seconds=10.0, batch=10, aof="always", faults=[Planned(1.0, "kill")])


def progress(elapsed, sent):
    looked = Looked(counts={"pending": 7, "active": 3, "dead": 1}, living=10, changes=sent, totals={"sent": sent})
    return Progress(PLAN, elapsed, looked, 4, {"kill": 1}, "faults")


def verdict(**changed):
    return msgspec.structs.replace(judge([("p", Opened(at=1, process="p", pid=1))]), **changed)


def round_account(**changed):
    given = {
        "round": 2,
        "seconds": 12.0,
        "faults": {"kill": 1},
        "stalls": 1,
        "recovery": 0.5,
        "problems": [],
        "verdict": verdict(messages=990, deliveries=1100, duplicates=3, explained={"kill": 3}),
    }
    return RoundAccount(**{**given, **changed})


@pytest.fixture
def shown():
    return io.StringIO()


def screen(shown, *, terminal):
    return Screen(Console(file=shown, force_terminal=terminal, width=100, color_system=None))


def test_without_a_terminal_there_is_a_line_for_each_round(shown):
    with screen(shown, terminal=False) as made:
        made.begin(PLAN, 3)
        made.fault(1.2, PLAN.faults[0], "worker-1")
        made.refresh(progress(1.0, 100))
        made.end(round_account())
    assert shown.getvalue().splitlines() == [
        "round 2 of 3: 1,000 messages in 10 s, 1 faults, AOF always",
        "round 2: right; 990 messages, 1,100 deliveries, 3 duplicates, 12 s",
    ]


def test_on_a_terminal_faults_and_the_queue_are_followed(shown, monkeypatch):
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


def test_a_round_that_failed_and_one_that_was_interrupted_are_told(shown):
    made = screen(shown, terminal=False)
    made.end(round_account(problems=["worker-1 ended with 1"], verdict=verdict(broken={"leases": 2}, right=False)))
    made.end(round_account(verdict=None))
    failed, interrupted = shown.getvalue().splitlines()
    assert failed.startswith("round 2: WRONG (leases 2, worker-1 ended with 1); ")
    assert interrupted == "round 2: interrupted"


def test_rounds_add_up():
    wrong = round_account(
        kept="/there", problems=["ended"], verdict=verdict(broken={"leases": 2, "doubt": 1}, right=False)
    )
    account = add_up("delayq torture --seed 1", [round_account(), wrong], 24.0, interrupted=False)
    assert (account.messages, account.faults, account.stalls, account.slowest_recovery) == (990, {"kill": 2}, 2, 0.5)
    assert (account.lost, account.in_two_places, account.unexpected, account.right) == (0, 2, 2, False)
    text = "\n".join(statement(account))
    assert "round 2 failed; its histories: /there\n  again: delayq torture --seed 1 --round 2\n" in text
    assert "lost 0, early 0, in two places 2, unexpected 2" in text


def test_what_was_held_up_and_how_soon_the_server_was_back_is_read_from_the_histories(tmp_path):
    file = tmp_path / "p.jsonl"
    with Recorder(file, "p") as recorder:
        recorder.write(Invoke(at=1_000_000, call=1, op="claim"))
        recorder.write(Fault(at=1_100_000, until=2_000_000, kind="server-kill"))
        recorder.write(Answer(at=2_300_000, call=1))
        recorder.write(Invoke(at=2_400_000, call=2, op="claim"))
        recorder.write(Answer(at=9_000_000, call=2))
        recorder.write(Fault(at=3_000_000, until=5_000_000, kind="stall", process="w"))
        recorder.write(Fault(at=6_000_000, until=8_000_000, kind="stall", process="w"))
        recorder.write(Fault(at=6_100_000, until=7_900_000, kind="stop", process="w"))
    assert look_back([file]) == (1, 0.3)
