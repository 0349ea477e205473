"""A migration, interrupted before or after each command and repeated, loses and duplicates nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq import DelayQueue
from delayq.migrate import Migration, migrate
from tests.crash.cuts import Cut, Cutter, GoneError, cut_client, gone
from tests.migrate.conftest import Go, arrived, dump_all

pytestmark = pytest.mark.timeout(300)

MIN_CUTS = 50
"""The least number of commands at which a migration is interrupted."""


class MigrationCase:
    """A Go queue that is moved over a connection which is cut at one command."""

    def __init__(self, url: str, go: Go, cutter: Cutter) -> None:
        self.url, self.go, self.cutter = url, go, cutter

    def move(self) -> Migration:
        with cut_client(self.url, self.cutter) as client:
            return migrate("example", "example", redis=client)

    def queue(self) -> DelayQueue[Any]:
        return DelayQueue("example", url=self.url, codec="bytes")


@pytest.fixture
def left(go) -> dict[str, list[str]]:
    """The ids that stay in the Go queue."""
    return go.fill()


@pytest.fixture
def cases(redis_url, go, left) -> Callable[..., Iterator[MigrationCase]]:
    """Yields a case for each command, cut before and after it."""
    began = dump_all(go.client)

    def begin() -> MigrationCase:
        with go.client.pipeline(transaction=False) as pipe:
            pipe.flushall()
            for key, value in began.items():
                pipe.restore(key, 0, value)
            pipe.execute()
        return MigrationCase(redis_url, go, Cutter())

    def make(*cuts: Cut, **options: Any) -> Iterator[MigrationCase]:
        begin().move()  # loads the scripts
        whole = begin()
        whole.cutter.arm(0, Cut.BEFORE)
        whole.move()
        assert whole.cutter.count > MIN_CUTS
        for at in range(1, whole.cutter.count + 1):
            for cut in cuts:
                case = begin()
                case.cutter.arm(at, cut, **options)
                yield case

    return make


@pytest.mark.long
def test_lost_connection_changes_no_result(cases, left):
    for case in cases(Cut.AFTER):
        assert case.move().complete
        with case.queue() as queue:
            assert arrived(queue, case.go) == case.go.expected
            assert queue.stats().totals["sent"] == len(case.go.expected)
        assert case.go.ids() == left


@pytest.mark.long
def test_killed_migration_can_be_repeated_after_consuming(cases, left):
    for case in cases(*Cut, ends=gone):
        with pytest.raises(GoneError):
            case.move()
        with case.queue() as queue:
            in_go = {id for ids in case.go.ids().values() for id in ids}
            assert in_go | arrived(queue, case.go).keys() >= case.go.expected.keys()
            with queue.lease(n=3) as messages:
                consumed = {message.id for message in messages}
            assert migrate("example", "example", url=case.url).complete
            moved = arrived(queue, case.go)
            assert moved == {id: one for id, one in case.go.expected.items() if id not in consumed}
            assert queue.counts().living == len(moved)
            assert queue.stats().totals["sent"] == len(case.go.expected)
        assert case.go.ids() == left
