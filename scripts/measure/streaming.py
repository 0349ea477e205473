"""Streams: sending and consuming beside the bare commands, and how fast a relay moves what is due.

Bare is what a client in any language does, as fast as its commands can be packed: XADD in batches, and XREADGROUP with
COUNT followed by XACK and XDEL of all that came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from delayq import DelayQueue
from delayq.streams import Relay, StreamQueue
from measure.figure import Figure, Measurement, Reading
from measure.raw import BATCH, PAYLOAD
from measure.stand import QUEUE, TEXT, Stand, rate_of

MESSAGES = 100_000
ONE_BY_ONE = 5000
STREAM, GROUP = "measured", "workers"


def sending(stand: Stand) -> Iterator[Reading]:
    """Messages a second sent, many at a time and one by one."""
    stand.empty()
    with StreamQueue(STREAM, url=stand.url) as tasks:
        tasks.open()
        n = stand.many(MESSAGES)
        ours, bare = stand.beside(
            lambda: rate_of(n, lambda: tasks.send_many([TEXT] * n)), lambda: rate_of(n, lambda: _bare_sends(stand, n))
        )
        yield Reading("stream_send_many", ours, bare)
        n = stand.many(ONE_BY_ONE)
        ours, bare = stand.beside(
            lambda: rate_of(n, lambda: [tasks.send(TEXT) for _ in range(n)]),
            lambda: rate_of(n, lambda: [stand.client.xadd(STREAM, _fields("x")) for _ in range(n)]),
        )
        yield Reading("stream_send", ours, bare)


def consuming(stand: Stand) -> Iterator[Reading]:
    """Messages a second through an empty callback, and pulled one by one."""
    n = stand.many(MESSAGES)
    ours, bare = stand.beside(
        lambda: rate_of(n, _filled(stand, n, _consume)), lambda: rate_of(n, _filled(stand, n, _bare_consume))
    )
    yield Reading("stream_consume", ours, bare)
    n = stand.many(ONE_BY_ONE)
    ours, bare = stand.beside(
        lambda: rate_of(n, _filled(stand, n, _pull)), lambda: rate_of(n, _filled(stand, n, _bare_pull))
    )
    yield Reading("stream_lease", ours, bare)


def relaying(stand: Stand) -> Iterator[Reading]:
    """Messages a second that one relay moves out of a queue into a stream."""
    n = stand.many(MESSAGES)
    stand.fill(n, 0)
    with DelayQueue(QUEUE, url=stand.url) as queue:
        yield Reading("stream_relay", rate_of(n, lambda: Relay(queue, STREAM).run(burst=True)))
    if stand.client.xlen(STREAM) != n:
        raise RuntimeError("not everything was moved")


def _fields(id: str) -> dict[str | bytes, str | bytes]:
    return {"id": id, "payload": PAYLOAD, "retries": "3"}


def _bare_sends(stand: Stand, n: int) -> None:
    for first in range(0, n, BATCH):
        with stand.client.pipeline(transaction=False) as pipe:
            for at in range(first, first + BATCH):
                pipe.xadd(STREAM, _fields(f"{at:022}"))
            pipe.execute()


def _filled(stand: Stand, n: int, work: Callable[[Stand, int], None]) -> Callable[[], None]:
    """Return what does the work on a stream of `n` messages, which is filled now."""
    stand.empty()
    stand.client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    _bare_sends(stand, n)

    def do() -> None:
        work(stand, n)
        if stand.client.xlen(STREAM):
            raise RuntimeError("something was left")

    return do


def _consume(stand: Stand, _: int) -> None:
    with StreamQueue(STREAM, group=GROUP, url=stand.url, callback=lambda _: None) as tasks:
        tasks.run(burst=True)


def _bare_consume(stand: Stand, n: int) -> None:
    done = 0
    while done < n:
        ((_, found),) = stand.client.xreadgroup(GROUP, "bare", {STREAM: ">"}, count=250)
        entries = [entry for entry, _ in found]
        with stand.client.pipeline() as pipe:
            pipe.xack(STREAM, GROUP, *entries).xdel(STREAM, *entries).execute()
        done += len(entries)


def _pull(stand: Stand, n: int) -> None:
    with StreamQueue(STREAM, group=GROUP, url=stand.url) as tasks:
        for _ in range(n):
            with tasks.lease():
                pass


def _bare_pull(stand: Stand, n: int) -> None:
    for _ in range(n):
        stand.client.xautoclaim(STREAM, GROUP, "bare", 30_000, count=1)
        ((_, ((entry, _),)),) = stand.client.xreadgroup(GROUP, "bare", {STREAM: ">"}, count=1)
        with stand.client.pipeline() as pipe:
            pipe.xack(STREAM, GROUP, entry).xdel(STREAM, entry).execute()


def measurements() -> list[Measurement]:
    """Return what is measured here."""
    return [
        Measurement(
            "stream_sends",
            sending,
            [
                Figure("stream_send_many", "stream: send_many", beside="commands"),
                Figure("stream_send", "stream: send, one by one", beside="commands"),
            ],
        ),
        Measurement(
            "stream_consumes",
            consuming,
            [
                Figure("stream_consume", "stream: empty callbacks", beside="commands"),
                Figure("stream_lease", "stream: lease and ack, one by one", beside="commands"),
            ],
        ),
        Measurement("stream_relays", relaying, [Figure("stream_relay", "relay: from queue to stream")]),
    ]
