"""Workers and producers of the version before work beside those of this one, and take over from each other."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, pairwise
from pathlib import Path
from subprocess import PIPE

import pytest
import redis

import delayq
from delayq import DelayQueue
from delayq.broker.keys import Keys
from delayq.bulk import move_cold
from delayq.testing.torture.final_scan import scan
from tests.failures.mixed.records import End, Expected, Records, Start
from tests.support.cold import as_stored
from tests.support.older_version import older_version
from tests.support.processes import Process, run
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.long]
PROGRAMS = Path(__file__).parent / "mixed"
KEYS = Keys.of("delayq", "mixed")
OLD, NEW = "old", "new"
PLAIN = ("plain", "delayed", "rescheduled", "cancelled", "raced", "replaced", "retried", "dying", "many", "slow")
SPECIAL = ("after", "debounced", "named", "headers", "prioritized", "unique", "retained", "expiring", "limited")
SPECIAL += ("snoozed", "repeated", "rejected", "discarded", "killed", "redriven", "logged", "paused")
NACK_DELAY = 80_000
"""How long (µs) a failed message waits at least: a fifth less than workers say."""
RUNNING = 2
"""How many of the messages with a limit may run at a time."""
REPEATS = 20
"""How many effects a kill repeats at most: those that their worker has not told Redis yet."""
UNSETTLED = 2_000_000
"""How long (µs) an effect may be without its settlement: a kill within this time explains that it is repeated."""


class Fleet:
    """The processes of a mixed queue: each has a name of its own, also after a restart."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder = url, folder
        self.records = Records(url)
        self.kills: dict[str, int] = {}
        """Which processes were killed, and the server's time (µs) just before."""
        self._versions = {OLD: older_version(), NEW: Path(delayq.__file__).parents[1]}
        self._processes: dict[str, Process] = {}
        self._started = Counter[str]()

    def start(self, program: str, version: str, *words: str) -> str:
        """Start a worker or a producer, and return its name."""
        folder = str(self._versions[version])
        self._started[version] += 1
        name = f"{version}{program[0]}{self._started[version]}"
        command = [sys.executable, PROGRAMS / f"{program}.py", self.url, name, folder, *words]
        with (self._folder / f"{name}.txt").open("w") as log:
            self._processes[name] = Process(command, env=os.environ | {"PYTHONPATH": folder}, stderr=log)
        return name

    def kill(self, name: str) -> None:
        """Kill a process at once."""
        self.kills[name] = self.records.now()
        process = self._processes.pop(name)
        assert process.poll() is None, self._said(name)
        process.end()

    def end(self, name: str, *, by_itself: bool = False) -> None:
        """Stop a process, or wait for its end; it must find nothing wrong."""
        process = self._processes.pop(name)
        if not by_itself:
            process.terminate()
        assert process.wait(60) == 0, self._said(name)

    def end_all(self) -> None:
        """Let the producers finish, wait until the workers have done all there is, and stop them."""
        self.records.client.set("stop", 1)
        for name in [name for name in self._processes if name[3] == "p"]:
            self.end(name, by_itself=True)
        with DelayQueue("mixed", url=self.url) as queue:
            queue.select(due_from=datetime.now(UTC) + timedelta(minutes=1)).cancel()  # of producers that were killed
            wait_until(lambda: not queue.counts().living and not queue.counts().successors, every=0.05)
        for name in list(self._processes):
            self.end(name)

    def await_start(self, *names: str) -> None:
        """Wait until processes have opened their queue."""
        wait_until(lambda: {*names} <= {*self.records.client.lrange("started", 0, -1)})

    def _said(self, name: str) -> str:
        return f"{name} has ended: {(self._folder / f'{name}.txt').read_text()[-3000:]}"


@pytest.fixture
def fleet(start_redis, tmp_path):
    fleet = Fleet(start_redis().url, tmp_path)
    with redis.Redis.from_url(fleet.url) as client:  # the queue is one that the version before has made
        client.hsetnx(KEYS.meta, "schema", 1)
    return fleet


def disturb(fleet: Fleet, kinds: tuple[str, ...], rounds: int, special: str = "") -> None:
    """Let two workers and a producer of each version work, and kill or stop one of them again and again.

    In the middle, a process of the version `special` makes the queue a special one.
    """
    workers = [fleet.start("worker", version) for version in (OLD, NEW, OLD, NEW)]
    producers = [fleet.start("producer", version, "0", *kinds) for version in (OLD, NEW)]
    fleet.await_start(*workers, *producers)
    for number, kill in zip(range(rounds), cycle([True, True, False]), strict=False):
        time.sleep(0.5)
        if special and number == rounds // 2:
            fleet.end(fleet.start("producer", special, "1", "special"), by_itself=True)
        name = workers.pop(0)
        fleet.await_start(name)
        fleet.kill(name) if kill else fleet.end(name)
        workers.append(fleet.start("worker", name[:3]))
        if number % 4 == 3:
            name = producers.pop(0)
            fleet.kill(name)
            producers.append(fleet.start("producer", name[:3], "0", *kinds))
    fleet.await_start(*workers, *producers)
    fleet.end_all()


def judge(fleet: Fleet) -> None:
    """Check that nothing was lost, doubled, early or left over, and that both versions find nothing wrong."""
    starts, ends, expected = fleet.records.starts(), fleet.records.ends(), fleet.records.expected()
    wrong = [*done(ends, expected, fleet.kills), *early(starts, ends, expected), *charged(starts, ends, fleet.kills)]
    for version in (OLD, NEW):
        fleet.end(fleet.start("producer", version, "1", "examined"), by_itself=True)
    with DelayQueue("mixed", url=fleet.url) as queue:
        for edition, (*_, dead) in expected.items():
            if dead and ((info := queue.get(edition)) is None or info.state != "dead"):
                wrong.append(f"{edition}: must be dead: {info}")
        retained = {end.edition for end in ends if "retained" in end.edition}
        wrong += [f"{one}: another result" for one in retained if queue.result(one, timeout=0) != one]
        wrong += scan(queue.executor, KEYS, own=False).leftovers
        totals = Counter(queue.stats().totals)
    came = totals["sent"] + totals["redriven"]
    went = totals["acked"] + totals["discarded"] + totals["cancelled"] + totals["dead"]
    if came != went or totals["events_lost"]:
        wrong.append(f"{came} came, {went} went: {totals}")
    assert not wrong, (len(wrong), wrong[:20], fleet.kills)


def done(ends: list[End], expected: dict[str, Expected], kills: dict[str, int]) -> Iterator[str]:
    """Yield what was lost, or done more often than a kill between the effect and its settlement explains."""
    effects, explained = Counter[str](), Counter[str]()
    for end in ends:
        if end.done:
            effects[end.edition] += 1
            explained[end.edition] += end.worker in kills and kills[end.worker] - end.at < UNSETTLED
    for edition, (least, most, *_) in expected.items():
        if not least <= effects[edition] <= most + explained[edition]:
            yield f"{edition}: done {effects[edition]} times, {explained[edition]} before a kill, not {least} to {most}"
    repeats = sum(max(effects[edition] - most, 0) for edition, (_, most, *_) in expected.items())
    if repeats > REPEATS * len(kills):
        yield f"{repeats} repeats are too many for {len(kills)} kills"
    if unknown := {*effects} - {*expected}:
        yield f"nobody has sent {unknown}"


def early(starts: list[Start], ends: list[End], expected: dict[str, Expected]) -> Iterator[str]:
    """Yield what started before it was due, or before its delay after a failure was over."""
    failed = {(end.edition, end.attempt): end.at for end in ends if not end.done and "redriven" not in end.edition}
    for start in starts:
        if start.at < max(start.due, expected[start.edition].earliest):
            yield f"early: {start}, {expected[start.edition]}"
        if start.at < failed.get((start.edition, start.attempt - 1), 0) + NACK_DELAY:
            yield f"early after a failure: {start}"


def charged(starts: list[Start], ends: list[End], kills: dict[str, int]) -> Iterator[str]:
    """Yield what was charged twice for an attempt, or not for a failure; a kill hides a start that was charged."""
    failed = {end.token for end in ends if not end.done and end.worker not in kills and "snoozed" not in end.edition}
    of_edition = defaultdict[str, list[Start]](list)
    for start in starts:
        of_edition[start.edition].append(start)
    hidden = 0
    for edition, made in of_edition.items():
        if "redriven" in edition or "unique" in edition:  # several messages
            continue
        made.sort(key=lambda start: start.token)
        hidden += max(made[0].attempt - 1, 0)
        for before, after in pairwise(made):
            more = after.attempt - before.attempt
            hidden += max(more - 1, 0)
            retries_spent = before.retries_left - after.retries_left
            if before.token == after.token or more != retries_spent or more < (before.token in failed):
                yield f"charged wrongly: {before}, {after}"
    if hidden > len(kills):
        yield f"{hidden} attempts were charged that nobody has started"


def crowded(starts: list[Start], ends: list[End]) -> Iterator[str]:
    """Yield where more messages ran at a time than their limit allows."""
    until = {end.token: end.at for end in ends if "limited" in end.edition}
    limited = [(start.at, until[start.token]) for start in starts if start.token in until]
    for at, _ in limited:
        if (running := sum(since <= at < end for since, end in limited)) > RUNNING:
            yield f"{running} of a limit of {RUNNING} run"


def schema(fleet: Fleet) -> int:
    """Return the schema version of the queue."""
    with redis.Redis.from_url(fleet.url) as client:
        return int(client.hget(KEYS.meta, "schema"))


def test_plain_messages(fleet):
    disturb(fleet, PLAIN, 6)
    judge(fleet)
    assert schema(fleet) == 1


@pytest.mark.parametrize("version", [OLD, NEW])
def test_queue_that_becomes_special_in_the_middle(fleet, version):
    disturb(fleet, PLAIN, 6, special=version)
    judge(fleet)
    assert schema(fleet) == 2


def test_every_kind_of_message(fleet):
    fleet.end(fleet.start("producer", OLD, "1", "special"), by_itself=True)
    disturb(fleet, PLAIN + SPECIAL, 10)
    judge(fleet)
    assert not [*crowded(fleet.records.starts(), fleet.records.ends())]


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)], ids=["upgrade", "downgrade"])
def test_one_version_takes_over_from_the_other(fleet, before, after):
    kinds = PLAIN + SPECIAL
    fleet.end(fleet.start("producer", before, "4", *kinds), by_itself=True)
    workers = [fleet.start("worker", before) for _ in range(2)]
    fleet.await_start(*workers)
    fleet.end(fleet.start("producer", before, "2", "held"), by_itself=True)
    fleet.end(fleet.start("producer", before, "4", *kinds), by_itself=True)
    wait_until(lambda: fleet.records.client.llen("held") == len(workers))
    for name in workers:
        fleet.kill(name)
    fleet.records.client.set("go", 1)
    for _ in workers:
        fleet.start("worker", after)
    fleet.end(fleet.start("producer", after, "2", *kinds), by_itself=True)
    fleet.end_all()
    judge(fleet)


@pytest.mark.parametrize(
    "use",
    [
        lambda queue: queue.send(1, id="g", debounce="1h", collect=9),
        lambda queue: queue.send(1, delay="1h", hours="08:00-21:00"),
        lambda queue: queue.limits.set("account:*", in_order=True),
    ],
    ids=["groups", "hours", "templates of limits"],
)
def test_older_version_refuses_a_queue_with_what_it_does_not_know(redis_url, use):
    program = f"from delayq import DelayQueue; DelayQueue('mixed', url={redis_url!r}).open(); print('open')"
    command, env = [sys.executable, "-P", "-c", program], {**os.environ, "PYTHONPATH": str(older_version())}
    with DelayQueue("mixed", url=redis_url) as queue:
        queue.send(1, id="plain", delay="1h", headers={"a": "b"})
        with redis.Redis.from_url(redis_url) as client:
            client.hset(KEYS.meta, "schema", 2)
        assert run(command, env=env, capture_output=True, text=True, check=True).stdout == "open\n"
        use(queue)
        refused = run(command, env=env, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "queue mixed has schema 6, but this delayq knows only 2: upgrade delayq" in refused.stderr


BESIDE = """
import sys
from delayq import DelayQueue

with DelayQueue("mixed", url=sys.argv[1]) as queue:
    for n in range(9):
        queue.send_delay_msg(n, f"{20 + n}d", id=f"m{n}", name="remind", headers={"n": str(n)}, priority=n % 3)
    print("sent", flush=True)
    sys.stdin.readline()
    print(queue.send_delay_msg(1, "1h", id="late").new, queue.reschedule("late", delay="2h"), queue.cancel("late"))
    try:
        DelayQueue("mixed", url=sys.argv[1]).open()
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
"""


def test_queue_of_the_older_version_gets_a_cold_tier_and_refuses_that_version(redis_url, tmp_path):
    """A process of it that has opened the queue before goes on; it neither loses nor brings back what is cold."""

    def move(keep):
        return move_cold("mixed", tmp_path / "cold", url=redis_url, keep=keep)

    env = os.environ | {"PYTHONPATH": str(older_version())}
    pipes = {"stdin": PIPE, "stdout": PIPE, "text": True, "bufsize": 1}
    with Process([sys.executable, "-P", "-c", BESIDE, redis_url], env=env, **pipes) as older:
        assert older.stdout.readline() == "sent\n"
        with DelayQueue("mixed", url=redis_url, codec="bytes") as queue:
            before = as_stored(queue)
            assert len(before) == 9
            assert move("24d").spilled == 3
            told, _ = older.communicate("go on\n")
            sent, refused = told.splitlines()
            assert sent == "True rescheduled cancelled"
            assert refused.startswith("UnsafeServerError: ")
            assert "queue mixed has schema 8, but this delayq knows only 2: upgrade delayq" in refused
            assert queue.cancel("m8") == "withdrawn"
            assert (move("100d").restored, move("100d").cold) == (2, 0)
            del before["m8"]
            assert as_stored(queue) == before
