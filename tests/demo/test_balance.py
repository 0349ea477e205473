"""The balance of the demo adds up only if all deliveries are accounted for."""

from __future__ import annotations

from itertools import count

import pytest

from delayq.demo.holidays.balance import DeliveryLog, KilledWorker, make_balance
from delayq.demo.holidays.demo_worker import EndedReport, StartedReport

DUE = 1_000_000


class Evidence:
    """The reports and totals of a run with a few messages, each due a second after the previous one."""

    def __init__(self):
        self.due = {}
        self.log = DeliveryLog()
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
        self.log.add(StartedReport(worker, id, token, attempt, at, late / 1000))
        if outcome:
            self.log.add(EndedReport(worker, id, token, outcome, 3 - attempt))
            if settled and outcome != "failed":
                self.totals[outcome] += 1
        return token

    def die(self, id):
        self.deliver(id, "failed")
        self.dead.add(id)

    def kill(self, worker, *held, lease):
        self.kills.append(KilledWorker(worker, f"worker {worker}", dict.fromkeys(held, lease)))

    def make_balance(self, **change):
        final = {"sent": len(self.due), "dead": len(self.dead), "left": 0, **self.totals} | change
        return make_balance(self.due, self.log, final, self.dead, self.kills)


@pytest.fixture
def run():
    run = Evidence()
    run.send("a", "b", "c", "d")
    run.deliver("b", "failed")
    run.deliver("b", attempt=2, late=200)
    run.deliver("c", "discarded")
    run.die("d")
    return run


def test_run_without_problems_adds_up(run):
    run.deliver("a")
    balance = run.make_balance()
    assert balance.adds_up
    assert (balance.sent, balance.acked, balance.dead, balance.discarded) == (4, 2, 1, 1)
    assert (balance.early, balance.lost, balance.duplicates, balance.retried) == (0, 0, 0, 1)
    assert balance.lateness_ms.max == 5


def test_delivery_before_its_due_time_is_early(run):
    run.deliver("a", late=-1)
    balance = run.make_balance()
    assert balance.early == 1
    assert not balance.adds_up


def test_undelivered_message_is_lost(run):
    balance = run.make_balance()
    assert balance.lost == 1
    assert not balance.adds_up


def test_message_acked_only_on_the_server_is_lost(run):
    balance = run.make_balance(acked=2)
    assert balance.lost == 1
    assert not balance.adds_up


def test_ack_unknown_to_the_server_does_not_add_up(run):
    run.deliver("a", settled=False)
    assert not run.make_balance().adds_up


def test_delivery_of_an_unsent_message_does_not_add_up(run):
    run.deliver("a")
    run.deliver("unsent")
    assert not run.make_balance().adds_up


def test_duplicate_after_the_lease_of_a_killed_worker_is_explained(run):
    token = run.deliver("a", None, worker=2)
    run.kill(2, ("a", token), lease=DUE + 2000)
    run.deliver("a", attempt=2, late=2001)
    balance = run.make_balance()
    assert (balance.duplicates, balance.explained, balance.in_flight, balance.killed) == (1, 1, 1, 1)
    assert balance.adds_up


def test_unsettled_delivery_of_a_killed_worker_may_be_repeated(run):
    token = run.deliver("a", worker=2, settled=False)
    run.kill(2, ("a", token), lease=DUE + 2000)
    run.deliver("a", attempt=2, late=2001)
    assert run.make_balance().adds_up


def test_duplicate_within_the_lease_is_not_explained(run):
    token = run.deliver("a", None, worker=2)
    run.kill(2, ("a", token), lease=DUE + 2000)
    run.deliver("a", attempt=2, late=1999)
    balance = run.make_balance()
    assert (balance.duplicates, balance.explained) == (1, 0)
    assert not balance.adds_up


def test_duplicate_without_a_kill_is_not_explained(run):
    run.deliver("a")
    run.deliver("a", settled=False, late=3000)
    balance = run.make_balance()
    assert (balance.duplicates, balance.explained) == (1, 0)
    assert not balance.adds_up


def test_duplicate_of_another_worker_is_not_explained(run):
    token = run.deliver("a", None, worker=1)
    run.kill(2, ("a", token), lease=DUE)
    run.deliver("a", attempt=2, late=3000)
    assert run.make_balance().explained == 0


def test_storing_an_id_twice_does_not_add_up(run):
    run.deliver("a")
    final = {"sent": 4, "acked": 2, "dead": 1, "discarded": 1, "left": 0}, {"d"}
    assert make_balance(run.due, run.log, *final, []).adds_up
    assert not make_balance(run.due, run.log, *final, [], stored_again=1).adds_up


def test_messages_left_add_up_only_after_an_interruption(run):
    final = {"sent": 4, "acked": 1, "dead": 1, "discarded": 1, "left": 1}, {"d"}
    assert not make_balance(run.due, run.log, *final, []).adds_up
    balance = make_balance(run.due, run.log, *final, [], interrupted=True)
    assert balance.adds_up
    assert (balance.left, balance.lost) == (1, 0)


def test_every_problem_is_reported(run):
    run.deliver("a", late=-1)
    run.deliver("a", late=1)
    assert len(run.make_balance(left=1).problems) >= 3
