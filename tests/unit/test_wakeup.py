"""How long an idle consumer blocks at a time."""

import asyncio
from types import SimpleNamespace

import pytest

from delayq.worker.drivers.own_threads import OwnThreads
from delayq.worker.drivers.wakeup import AsyncListener, Listener, SharedWaits
from tests.support.waiting import wait_until


class Waiting:
    """Stands for executor and calls: notes how long each wait may last, and answers it at once."""

    def __init__(self, answers, *, max_block=60.0, takes=False):
        self.answers = list(answers)
        self.seconds = []
        self.max_block = max_block
        self.calls = SimpleNamespace(await_wake=lambda seconds: seconds, wake=lambda: 0.0, waiting_takes=takes)
        self.listener = None

    def answer(self, seconds):
        if self.answers:
            self.seconds.append(seconds)
            return [self.answers.pop(0)]
        self.listener.listen(on=False)
        return [False]

    def on_wakeup(self):
        self.listener.listen(on=True)


def in_threads(waiting):
    waiting.run = lambda calls, deadline: waiting.answer(*calls)
    waiting.listener = Listener(waiting, waiting.calls, waiting.on_wakeup, OwnThreads())
    waiting.listener.listen(on=True)
    wait_until(lambda: not waiting.answers and not waiting.listener._listening.is_set())
    waiting.listener.close(wait=True)
    wait_until(lambda: not waiting.listener._thread.is_alive())


def in_tasks(waiting):
    async def main():
        async def run(calls, deadline):
            await asyncio.sleep(0)
            return waiting.answer(*calls)

        waiting.run = run
        waiting.listener = AsyncListener(waiting, waiting.calls, waiting.on_wakeup, print)
        waiting.listener.listen(on=True)
        while waiting.answers or waiting.listener._listening.is_set():  # noqa: ASYNC110 - after a step or two
            await asyncio.sleep(0)
        await waiting.listener.close()

    asyncio.run(main())


@pytest.mark.parametrize("listen", [in_threads, in_tasks])
@pytest.mark.parametrize(
    ("options", "answers", "seconds"),
    [
        ({}, [False] * 6, [1, 2, 4, 5, 5, 5]),
        ({}, [False, False, True, False, False], [1, 2, 4, 1, 2]),
        ({"max_block": 4.25}, [False] * 5, [1, 2, 4, 4.25, 4.25]),
        ({"max_block": 0.5}, [False] * 3, [0.5, 0.5, 0.5]),
        ({"takes": True}, [False] * 3, [1, 1, 1]),
    ],
    ids=["longer and longer", "anew after a wake-up", "within the timeout", "a short timeout", "where it takes"],
)
def test_each_wait_in_vain_is_followed_by_a_longer_one(listen, options, answers, seconds):
    waiting = Waiting(answers, **options)
    listen(waiting)
    assert waiting.seconds == seconds


def test_error_counts_once_no_key_is_left_to_wait_for():
    """So a listener pauses, and does not ask again and again for the only key if it is no list."""
    wait = SimpleNamespace(args=("BLPOP", "wake", "0"))
    waits = SharedWaits([SimpleNamespace(context=SimpleNamespace(calls=SimpleNamespace(await_wake=lambda _: wait)))])
    for _ in range(2):
        command = waits.await_wake(1.0)
        assert command.expects == "WRONGTYPE"
        assert command.parse(Exception("WRONGTYPE")) is False
    assert waits.await_wake(1.0).expects == ()
