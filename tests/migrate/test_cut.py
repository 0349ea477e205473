"""A migration is cut off at each of its commands, on either side: begun again, it has lost and doubled nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq import DelayQueue
from delayq.migrate import Migration, migrate
from tests.crash.cuts import Cut, Cutter, GoneError, cut_client, gone
from tests.migrate.conftest import Go, dumped, told

pytestmark = pytest.mark.timeout(300)

LEAST = 50
"""Commands that are cut off at, at least."""


class Course:
    """A Go queue that is moved over a connection which is cut at one place."""

    def __init__(self, url: str, go: Go, cutter: Cutter) -> None:
        self.url, self.go, self.cutter = url, go, cutter

    def move(self) -> Migration:
        with cut_client(self.url, self.cutter) as client:
            return migrate("example", "example", redis=client)

    def queue(self) -> DelayQueue[Any]:
        return DelayQueue("example", url=self.url, codec="bytes")


@pytest.fixture
def left(go) -> dict[str, list[str]]:
    """What is left when all is over."""
    return go.fill()


@pytest.fixture
def courses(redis_url, go, left) -> Callable[..., Iterator[Course]]:
    """Yields a course for each command and each side of it."""
    began = dumped(go.client)

    def begin() -> Course:
        with go.client.pipeline(transaction=False) as pipe:
            pipe.flushall()
            for key, value in began.items():
                pipe.restore(key, 0, value)
            pipe.execute()
        return Course(redis_url, go, Cutter())

    def make(*cuts: Cut, **options: Any) -> Iterator[Course]:
        begin().move()  # so that the server knows the scripts
        whole = begin()
        whole.cutter.arm(0, Cut.BEFORE)
        whole.move()
        assert whole.cutter.count > LEAST
        for at in range(1, whole.cutter.count + 1):
            for cut in cuts:
                course = begin()
                course.cutter.arm(at, cut, **options)
                yield course

    return make


def test_one_that_loses_its_connection_goes_on_and_has_its_result_once(courses, left):
    for course in courses(Cut.AFTER):
        assert course.move().complete
        with course.queue() as queue:
            assert told(queue, course.go) == course.go.told
            assert queue.stats().totals["sent"] == len(course.go.told)
        assert course.go.ids() == left


def test_one_that_is_gone_is_begun_again_be_some_of_what_it_sent_consumed_or_not(courses, left):
    for course in courses(*Cut, ends=gone):
        with pytest.raises(GoneError):
            course.move()
        with course.queue() as queue:
            standing = {id for ids in course.go.ids().values() for id in ids}
            assert standing | told(queue, course.go).keys() >= course.go.told.keys()
            with queue.lease(n=3) as messages:
                consumed = {message.id for message in messages}
            assert migrate("example", "example", url=course.url).complete
            arrived = told(queue, course.go)
            assert arrived == {id: one for id, one in course.go.told.items() if id not in consumed}
            assert queue.counts().living == len(arrived)
            assert queue.stats().totals["sent"] == len(course.go.told)
        assert course.go.ids() == left
