"""The account of the demo adds up only if the evidence does."""

from __future__ import annotations

from itertools import count

import pytest

from delayq.demo.account import Final, Kill, Ledger, settle
from delayq.demo.worker import Ended, Started

DUE = 1_000_000


class Evidence:
    """What is left of a run of a few messages, each delivered a second after the one before."""

    def __init__(self):
        self.due = {}
        self.ledger = Ledger()
        self.kills = []
        self.totals = {"acked": 0, "discarded": 0}
        self.dead = set()
        self._tokens = count(1)

    def send(self, *ids):
        for id in ids:
            self.due[id] = DUE + 1000 * len(self.due)

    def deliver(self, id, outcome="acked", *, worker=1, late=5, attempt=1, settled=True):
        token = next(self._tokens)
        at = (self.due.get(id, DUE) + late) * 1000
        self.ledger.add(Started(worker, id, token, attempt, at, late / 1000))
        if outcome:
            self.ledger.add(Ended(worker, id, token, outcome, 3 - attempt))
            if settled and outcome != "failed":
                self.totals[outcome] += 1
        return token

    def die(self, id):
        self.deliver(id, "failed")
        self.dead.add(id)

    def kill(self, worker, *held, lease):
        self.kills.append(Kill(worker, f"worker {worker}", dict.fromkeys(held, lease)))

    def settle(self, **change):
        final = {"sent": len(self.due), "dead": len(self.dead), "left": 0, **self.totals} | change
        return settle(self.due, self.ledger, Final(**final, dead_ids=frozenset(self.dead)), self.kills)


@pytest.fixture
def run():
    run = Evidence()
    run.send("a", "b", "c", "d")
    run.deliver("b", "failed")
    run.deliver("b", attempt=2, late=200)
    run.deliver("c", "discarded")
    run.die("d")
    return run


def test_a_sound_run_adds_up(run):
    run.deliver("a")
    account = run.settle()
    assert account.adds_up
    assert (account.sent, account.acked, account.dead, account.discarded) == (4, 2, 1, 1)
    assert (account.early, account.lost, account.duplicates, account.retried) == (0, 0, 0, 1)
    assert account.lateness_ms.max == 5


def test_a_delivery_before_its_time_is_early(run):
    run.deliver("a", late=-1)
    account = run.settle()
    assert account.early == 1
    assert not account.adds_up


def test_a_message_that_nobody_saw_is_lost(run):
    account = run.settle()
    assert account.lost == 1
    assert not account.adds_up


def test_a_message_that_only_the_server_calls_acked_is_lost(run):
    account = run.settle(acked=2)
    assert account.lost == 1
    assert not account.adds_up


def test_an_ack_that_the_server_does_not_know_is_found(run):
    run.deliver("a", settled=False)
    assert not run.settle().adds_up


def test_a_message_that_was_never_sent_is_found(run):
    run.deliver("a")
    run.deliver("stranger")
    assert not run.settle().adds_up


def test_a_duplicate_of_a_killed_worker_is_explained_once_its_lease_is_over(run):
    token = run.deliver("a", None, worker=2)
    run.kill(2, ("a", token), lease=DUE + 2000)
    run.deliver("a", attempt=2, late=2001)
    account = run.settle()
    assert (account.duplicates, account.explained, account.in_flight, account.killed) == (1, 1, 1, 1)
    assert account.adds_up


def test_what_a_killed_worker_had_done_and_not_settled_may_come_again(run):
    token = run.deliver("a", worker=2, settled=False)
    run.kill(2, ("a", token), lease=DUE + 2000)
    run.deliver("a", attempt=2, late=2001)
    assert run.settle().adds_up


def test_a_duplicate_within_the_lease_is_not_explained(run):
    token = run.deliver("a", None, worker=2)
    run.kill(2, ("a", token), lease=DUE + 2000)
    run.deliver("a", attempt=2, late=1999)
    account = run.settle()
    assert (account.duplicates, account.explained) == (1, 0)
    assert not account.adds_up


def test_a_duplicate_without_a_kill_is_not_explained(run):
    run.deliver("a")
    run.deliver("a", settled=False, late=3000)
    account = run.settle()
    assert (account.duplicates, account.explained) == (1, 0)
    assert not account.adds_up


def test_a_duplicate_of_another_worker_is_not_explained_by_the_kill(run):
    token = run.deliver("a", None, worker=1)
    run.kill(2, ("a", token), lease=DUE)
    run.deliver("a", attempt=2, late=3000)
    assert run.settle().explained == 0


def test_storing_an_id_twice_does_not_add_up(run):
    run.deliver("a")
    final = Final(sent=4, acked=2, dead=1, discarded=1, left=0, dead_ids=frozenset("d"))
    assert settle(run.due, run.ledger, final, []).adds_up
    assert not settle(run.due, run.ledger, final, [], stored_again=1).adds_up


def test_what_is_left_adds_up_only_after_an_interruption(run):
    final = Final(sent=4, acked=1, dead=1, discarded=1, left=1, dead_ids=frozenset("d"))
    assert not settle(run.due, run.ledger, final, []).adds_up
    account = settle(run.due, run.ledger, final, [], interrupted=True)
    assert account.adds_up
    assert (account.left, account.lost) == (1, 0)


def test_every_problem_is_told(run):
    run.deliver("a", late=-1)
    run.deliver("a", late=1)
    assert len(run.settle(left=1).problems) >= 3
