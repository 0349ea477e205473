"""A pass of the cold tier that is killed at any step: at every instant exactly one place owns each message."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq import DelayQueue
from delayq.broker.transport.executor import Executor
from delayq.bulk import move_cold
from delayq.bulk.cold import spilling
from delayq.bulk.cold.cold_folder import ColdFolder
from delayq.queue.inspecting.cold_tier import read_cold
from delayq.values.times import from_millis
from tests.support.cold import FOREVER, as_stored, day_later

STEPS = ("write_spilled", "write_day", "remove_spilled", "remove", "put_away")
"""What a pass does to its folder."""


class KilledError(BaseException):
    """The end of a process, in its place."""


class Passes:
    """Passes over one queue, each killed before or after one of its steps."""

    def __init__(self, monkeypatch, url, folder):
        self.url, self.folder = url, folder
        self._left = None
        for name in STEPS:
            monkeypatch.setattr(ColdFolder, name, self._counted(getattr(ColdFolder, name)))
        self._call = Executor.call
        monkeypatch.setattr(Executor, "call", self._counted(self._call))
        monkeypatch.setattr(spilling, "FILE_ROWS", 4)

    def _counted(self, step):
        def counted(*args, **options):
            self._tick()
            result = step(*args, **options)
            self._tick()
            return result

        return counted

    def _tick(self):
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KilledError

    def make(self, kill_after=None, **options):
        """Make a pass; returns whether it came to its end."""
        self._left = kill_after
        try:
            move_cold("q", self.folder, url=self.url, **options)
        except KilledError:
            return False
        finally:
            self._left = None
        return True

    def owned(self, queue):
        """Return how often each message is owned, in the queue or a file, by id and due time."""
        owned = Counter((one.id, one.due) for one in as_stored(queue).values())
        tier = queue.executor.call(read_cold(queue.context.calls))
        folder = ColdFolder(self.folder, {"id": ""})
        for file in tier.files:
            owned.update((row.id, row.due) for rows in folder.read(file.name, file.back) for row in rows)
        for name, moved in tier.moved.items():
            if "1" in moved:
                rows = folder.read_spilled(name)
                owned.update((row.id, row.due) for row, one in zip(rows, moved, strict=False) if one == "1")
        return owned


@pytest.fixture
def passes(monkeypatch, redis_url, tmp_path):
    return Passes(monkeypatch, redis_url, tmp_path / "cold")


def fill(queue):
    for number in range(10):
        queue.send(b"m%d" % number, id=f"{number}", delay=day_later(10 + number // 3))
    return Counter((one.id, one.due) for one in as_stored(queue).values())


@pytest.mark.parametrize("keep", ["5d", FOREVER], ids=["spill", "bring back"])
def test_kill_at_every_step_leaves_one_owner(queue, passes, keep):
    for kill_after in range(1000):
        queue.purge()
        shutil.rmtree(passes.folder, ignore_errors=True)
        before = fill(queue)
        if keep == FOREVER:
            assert passes.make()
        if passes.make(kill_after, keep=keep):
            break
        assert passes.owned(queue) == before, f"killed at step {kill_after}"
        assert passes.make(keep="5d")
        assert passes.owned(queue) == before
        assert passes.make(keep=FOREVER)
        assert Counter((one.id, one.due) for one in as_stored(queue).values()) == before
    assert kill_after > 30


def test_other_pass_at_every_step_leaves_one_owner(queue, passes, monkeypatch, redis_url, tmp_path):
    """Two machines: a whole pass of the second falls between any two steps of the first."""
    for at in range(1000):
        queue.purge()
        shutil.rmtree(passes.folder, ignore_errors=True)
        before, done = fill(queue), []

        def tick(at=at, done=done, folder=passes.folder):
            if len(done) == at:
                done.append("other")
                move_cold("q", folder, url=redis_url, keep=FOREVER if at % 2 else "5d")
            done.append("step")

        monkeypatch.setattr(passes, "_tick", tick)
        move_cold("q", passes.folder, url=redis_url)
        monkeypatch.undo()
        assert passes.owned(queue) == before, f"before step {at}"
        if "other" not in done:
            break
        assert passes.make(keep=FOREVER)
        assert Counter((one.id, one.due) for one in as_stored(queue).values()) == before
        passes = Passes(monkeypatch, redis_url, tmp_path / "cold")
    assert at > 30


IDS = [f"m{number}" for number in range(6)]
MOVES = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(IDS), st.integers(1, 40)),
    st.tuples(st.just("replace"), st.sampled_from(IDS), st.integers(1, 40)),
    st.tuples(st.just("cancel"), st.sampled_from(IDS)),
    st.tuples(st.just("reschedule"), st.sampled_from(IDS), st.integers(1, 40)),
    st.tuples(st.just("pass"), st.sampled_from([3, 15, 30]), st.none() | st.integers(0, 60)),
)


class World:
    """What must become of the messages, as a dict; ids of cold ones are not sent again."""

    def __init__(self, queue, passes):
        self.queue, self.passes = queue, passes
        self.wanted = {}
        self._numbers = iter(range(1 << 20))

    def send(self, id, day, *, replace=False):
        payload = b"%d" % next(self._numbers)
        stored = id in as_stored(self.queue)
        if id in self.wanted and not stored:  # it is cold: a send would be stored beside it
            return
        self.queue.send(payload, id=id, delay=day_later(day), replace=replace)
        if not stored or replace:
            self.wanted[id] = (payload, self._due(id))

    def replace(self, id, day):
        self.send(id, day, replace=True)

    def cancel(self, id):
        stored, outcome = id in as_stored(self.queue), self.queue.cancel(id)
        assert outcome == ("cancelled" if stored else outcome)
        if id in self.wanted:
            assert outcome in ("cancelled", "withdrawn")
        self.wanted.pop(id, None)

    def reschedule(self, id, day):
        later = (self.queue.context.calls.time(), timedelta(days=day))
        due = self.queue.executor.call(later[0]) // 1000 * 1000 + int(later[1].total_seconds()) * 1000
        outcome = self.queue.reschedule(id, at=from_millis(due))
        if id in self.wanted:
            assert outcome in ("rescheduled", "noted")
            self.wanted[id] = (self.wanted[id][0], due)

    def make_pass(self, keep, kill_after):
        self.passes.make(kill_after, keep=f"{keep}d")

    def check(self):
        assert self.passes.make(keep=FOREVER)
        found = {one.id: (one.payload, one.due) for one in as_stored(self.queue).values()}
        assert found == self.wanted

    def _due(self, id):
        return as_stored(self.queue)[id].due


@pytest.fixture
def world(redis_url, passes):
    with DelayQueue("q", url=redis_url, codec="bytes") as queue:
        yield lambda: _fresh(queue, passes)


def _fresh(queue, passes):
    queue.purge()
    shutil.rmtree(passes.folder, ignore_errors=True)
    return World(queue, passes)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(moves=st.lists(MOVES, max_size=14))
def test_messages_are_those_of_a_dict(world, moves):
    one = world()
    one.queue.open()
    for name, *how in moves:
        (one.make_pass if name == "pass" else getattr(one, name))(*how)
    one.check()
