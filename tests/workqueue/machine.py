"""State machine: two of our clients, and peers and cleaners that pause or die between any two commands."""

from __future__ import annotations

from typing import Any

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from delayq.broker.transport.operation import Wait
from delayq.workqueue import Item, WorkQueue
from tests.workqueue.peer import Peer, Steps, run_call

SIDES = st.integers(0, 1)
CHOICES = st.integers(0, 1000)


class Sharing(RuleBasedStateMachine):
    """The queue that all clients share; `db` is the client of an empty Redis.

    The model assumes that a living peer never pauses between two commands for longer than a cleaner's grace.
    """

    db: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.db.flushall()
        self.ours = [WorkQueue("jobs"), WorkQueue("jobs")]
        self.peer = Peer(self.db)
        self.added = 0
        self.leases: list[str] = []
        """Ids that were leased; a worker whose lease expired can still complete its item."""
        self.completed: set[str] = set()
        self.adding: list[Steps[Any]] = []
        self.leasing: list[Steps[Any]] = []
        self.completing: list[tuple[str, Steps[Any]]] = []
        self.cleaning: list[Any] = []

    # Adding and completing items

    def new_id(self) -> str:
        self.added += 1
        return f"id-{self.added}"

    @rule(side=SIDES, known=st.booleans())
    def our_add(self, side: int, *, known: bool) -> None:
        item = Item(b"\xff", id=self.new_id())
        if known:
            self.ours[side].add_unique_item(self.db, item)
        else:
            assert self.ours[side].add_item(self.db, item)
            assert not self.ours[1 - side].add_item(self.db, item)

    @rule(known=st.booleans())
    def peer_starts_add(self, *, known: bool) -> None:
        id = self.new_id()
        steps = self.peer.add_unique_item(id, b"\xff") if known else self.peer.add_item(id, b"\xff")
        self._start(self.adding, steps)

    @rule(side=SIDES)
    def our_lease(self, side: int) -> None:
        held, kept = self._leased(), self._leased(to_workers=False)
        waiting = self.db.lrange("jobs:queue", 0, -1)
        item = self.ours[side].lease(self.db, 3600, False)
        if item is None:
            assert not {id.decode() for id in waiting} & self._alive() - kept
            return
        assert item.data() == b"\xff"
        assert item.id() not in held, "leased while another lease is valid"
        self.leases.append(item.id())

    @rule()
    def peer_starts_lease(self) -> None:
        self._start(self.leasing, self.peer.lease(3600))

    @precondition(lambda self: self.leases)
    @rule(side=SIDES, choice=CHOICES)
    def our_complete(self, side: int, choice: int) -> None:
        id = self.leases[choice % len(self.leases)]
        self._completed(id, first=self.ours[side].complete(self.db, Item("", id=id)))

    @precondition(lambda self: self.leases)
    @rule(choice=CHOICES)
    def peer_starts_complete(self, choice: int) -> None:
        id = self.leases[choice % len(self.leases)]
        self._start(self.completing, self.peer.complete(id), id)

    @rule(choice=CHOICES)
    def peer_continues(self, choice: int) -> None:
        operations = [self.adding, self.leasing, self.completing]
        running = [(kind, one) for kind in operations for one in kind]
        if running:
            self._continue(*running[choice % len(running)])

    @rule(choice=CHOICES)
    def peer_dies(self, choice: int) -> None:
        running = [(kind, one) for kind in (self.adding, self.leasing, self.completing) for one in kind]
        if running:
            kind, one = running[choice % len(running)]
            kind.remove(one)

    @rule(choice=CHOICES)
    def lease_expires(self, choice: int) -> None:
        leases = sorted(self.db.keys("jobs:lease:*"))
        if leases:
            self.db.delete(leases[choice % len(leases)])

    # Cleaners

    @precondition(lambda self: len(self.cleaning) < 2)
    @rule(side=SIDES, deep=st.booleans())
    def cleaner_starts(self, side: int, *, deep: bool) -> None:
        self.cleaning.append([self.ours[side]._clean(1, deep=deep), None])

    @precondition(lambda self: self.cleaning)
    @rule(choice=CHOICES, steps=st.integers(1, 12))
    def cleaner_continues(self, choice: int, steps: int) -> None:
        cleaner = self.cleaning[choice % len(self.cleaning)]
        for _ in range(steps):
            try:
                step = cleaner[0].send(cleaner[1])
            except StopIteration:
                self.cleaning.remove(cleaner)
                return
            cleaner[1] = None
            if isinstance(step, Wait):
                self._pass_grace()
            else:
                (call,) = step
                cleaner[1] = [run_call(self.db, call)]

    @precondition(lambda self: self.cleaning)
    @rule(choice=CHOICES)
    def cleaner_dies(self, choice: int) -> None:
        self.cleaning.pop(choice % len(self.cleaning))

    # Invariants

    @invariant()
    def no_id_is_listed_twice(self) -> None:
        listed = self.db.lrange("jobs:queue", 0, -1) + self.db.lrange("jobs:processing", 0, -1)
        assert len(listed) == len(set(listed))

    def teardown(self) -> None:
        """After all clients died, a deep clean requeues every item that is not completed, once."""
        for lease in self.db.keys("jobs:lease:*"):
            self.db.delete(lease)
        ours, remaining = self.ours[0], self._alive()
        ours.deep_clean(self.db, grace=0)
        got = list(iter(lambda: ours.lease(self.db, 3600, False), None))
        assert sorted(item.id() for item in got) == sorted(remaining)
        assert remaining | self.completed >= {f"id-{n}" for n in range(1, self.added + 1)}
        assert not remaining & self.completed
        assert all(ours.complete(self.db, item) for item in got)
        ours.light_clean(self.db, grace=0)
        assert self.db.keys("*") == []

    # Helpers

    def _alive(self) -> set[str]:
        return {key.decode().removeprefix("jobs:item:") for key in self.db.keys("jobs:item:*")}

    def _leased(self, *, to_workers: bool = True) -> set[str]:
        """Ids leased by workers, not by cleaners."""
        workers = {one.encode() for one in (self.peer.session, *(queue._session for queue in self.ours))}
        leases = [key for key in self.db.keys("jobs:lease:*") if not to_workers or self.db.get(key) in workers]
        return {key.decode().removeprefix("jobs:lease:") for key in leases}

    def _completed(self, id: str, *, first: bool) -> None:
        assert first == (id not in self.completed)
        self.completed.add(id)

    def _start(self, kind: list[Any], steps: Steps[Any], id: str = "") -> None:
        one = (id, steps) if kind is self.completing else steps
        kind.append(one)
        self._continue(kind, one)
        if id and one in kind:  # its first command decides
            self._completed(id, first=id not in self.completed)

    def _continue(self, kind: list[Any], one: Any) -> None:
        held = self._leased()
        try:
            next(one[1] if kind is self.completing else one)
        except StopIteration as end:
            reply = end.value
        else:
            return
        kind.remove(one)
        if kind is self.leasing and reply is not None:
            assert reply[0] not in held, "leased while another lease is valid"
            self.leases.append(reply[0])

    def _pass_grace(self) -> None:
        for kind in (self.adding, self.leasing):
            for one in list(kind):
                while one in kind:
                    self._continue(kind, one)
