"""Passes of the cold tier that are killed anywhere, also two at a time, while Redis loses what it did last."""

from __future__ import annotations

import random
import shutil

import pytest

from delayq import DelayQueue
from delayq.broker.transport.executor import Executor
from delayq.bulk import find_cold, move_cold
from delayq.bulk.cold import bringing_back, merging, spilling
from delayq.bulk.cold.cold_folder import ColdFolder
from tests.support.cold import FOREVER, as_stored, cold_files, day_later

STEPS = ("write_spilled", "write_day", "remove_spilled", "remove", "put_away", "take_back")
ROUNDS = 10


class KilledError(BaseException):
    """The end of a process, in its place."""


class Crashes:
    """Kills a pass after some steps, runs another one within it, and lets Redis fall back to what it was before."""

    def __init__(self, monkeypatch, client):
        self._client = client
        self._left = self._until_other = self._other = None
        self._states = []
        for name in STEPS:
            monkeypatch.setattr(ColdFolder, name, self._counted(getattr(ColdFolder, name)))
        monkeypatch.setattr(Executor, "call", self._counted(Executor.call, is_call=True))

    def _counted(self, step, *, is_call=False):
        def counted(*args, **options):
            self._tick()
            result = step(*args, **options)
            if is_call and self._other is not None:
                self._states.append(self._state())
            self._tick()
            return result

        return counted

    def _tick(self):
        if self._until_other is not None:
            self._until_other -= 1
            if self._until_other < 0:
                self._until_other, left, self._left = None, self._left, None
                self._other()
                self._left = left
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KilledError

    def _state(self):
        return {key: self._client.dump(key) for key in self._client.scan_iter()}

    def make(self, run, other, left, until_other):
        """Make a pass that is killed after so many steps, with another one within it; returns if it came to its end."""
        self._states, self._other = [self._state()], other
        self._left, self._until_other = left, until_other
        try:
            run()
        except KilledError:
            return False
        finally:
            self._left = self._until_other = self._other = None
        return True

    def lose(self, chosen):
        """Let Redis fall back to a state that it had during the pass."""
        state = chosen.choice(self._states)
        self._client.flushdb()
        for key, value in state.items():
            self._client.restore(key, 0, value)


@pytest.fixture
def crashes(monkeypatch, redis_client):
    monkeypatch.setattr(spilling, "FILE_ROWS", 6)
    monkeypatch.setattr(spilling, "MAX_IDS", 2)
    monkeypatch.setattr(merging, "MIN_FILES", 2)
    monkeypatch.setattr(bringing_back, "MAX_MOVED", 2)
    return Crashes(monkeypatch, redis_client)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_no_message_is_lost_or_comes_back_after_a_cancel(crashes, redis_url, redis_client, tmp_path, seed):
    chosen = random.Random(seed)
    for number in range(ROUNDS):
        redis_client.flushdb()
        with DelayQueue("q", url=redis_url, codec="bytes") as queue:
            wanted = play(queue, crashes, chosen, tmp_path / str(number), redis_url)
            assert set(as_stored(queue)) == wanted, (seed, number)


def play(queue, crashes, chosen, folder, url):
    """Send, cancel and reschedule between crashed passes, and bring all back; returns the ids that must be there."""
    wanted, sent, is_whole = set(), 0, True
    queue.open()

    def run():
        move_cold("q", folder, url=url, keep=chosen.choice(["5d", "15d", "30d"]))

    for _ in range(7):
        for _ in range(chosen.randint(0, 7)):
            queue.send(b"m", id=f"m{sent}", delay=day_later(chosen.choice([12, 13, 25, 40])))
            wanted.add(f"m{sent}")
            sent += 1
        for id in chosen.sample(sorted(wanted), min(len(wanted), chosen.choice([0, 0, 1, 2]))):
            if chosen.random() < 0.5:
                assert queue.cancel(id) in {"cancelled", "withdrawn"}
                wanted.remove(id)
            else:
                queue.reschedule(id, chosen.choice(["1d", "20d", "60d"]))
        if is_whole and chosen.random() < 0.4:
            shutil.rmtree(folder / "_done", ignore_errors=True)  # Redis has saved what the last pass did
        left, until_other = (chosen.choice([None, chosen.randint(0, 80)]) for _ in range(2))
        is_whole = crashes.make(run, run, left, until_other)
        if chosen.random() < 0.6:
            crashes.lose(chosen)
            is_whole = False
    for _ in range(2):
        move_cold("q", folder, url=url, keep=FOREVER)
    return wanted


def test_a_merge_that_redis_has_forgotten_is_undone(queue, redis_client, redis_url, tmp_path, monkeypatch):
    folder = tmp_path / "cold"
    monkeypatch.setattr(merging, "MIN_FILES", 2)
    queue.send(b"m", id="a", delay="20d")
    move_cold("q", folder, url=redis_url)
    queue.send(b"m", id="b", delay="20d")
    before = {}
    merge = merging.merge_files_call

    def remembered(*args):
        before.update({key: redis_client.dump(key) for key in redis_client.scan_iter()})
        return merge(*args)

    monkeypatch.setattr(merging, "merge_files_call", remembered)
    move_cold("q", folder, url=redis_url)
    assert len(cold_files(folder)) == 1
    redis_client.flushdb()
    for key, value in before.items():
        redis_client.restore(key, 0, value)
    assert find_cold("q", "a", folder, url=redis_url) is None  # its file was put away
    monkeypatch.setattr(merging, "MIN_FILES", 9)
    move_cold("q", folder, url=redis_url)
    shutil.rmtree(folder / "_done")
    assert find_cold("q", "a", folder, url=redis_url) is not None
    assert move_cold("q", folder, url=redis_url, keep=FOREVER).restored == 2
