"""Measures streams: sending and consuming compared with bare commands, and the throughput of a relay.

The bare commands are those of a client in any language: XADD in batches, and XREADGROUP with COUNT followed by XACK and
XDEL of all entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from delayq import DelayQueue
from delayq.streams import Relay, StreamQueue
from measure.bench_server import QUEUE, TEXT, BenchServer, rate_of
from measure.figure import Figure, Measurement, Reading
from measure.raw import BATCH, PAYLOAD

MESSAGES = 100_000
ONE_BY_ONE = 5000
STREAM, GROUP = "measured", "workers"


def sending(server: BenchServer) -> Iterator[Reading]:
    """Messages per second sent, in batches and one by one."""
    server.empty()
    with StreamQueue(STREAM, url=server.url) as tasks:
        tasks.open()
        n = server.many(MESSAGES)
        ours, bare = server.compare(
            lambda: rate_of(n, lambda: tasks.send_many([TEXT] * n)), lambda: rate_of(n, lambda: _bare_sends(server, n))
        )
        yield Reading("stream_send_many", ours, bare)
        n = server.many(ONE_BY_ONE)
        ours, bare = server.compare(
            lambda: rate_of(n, lambda: [tasks.send(TEXT) for _ in range(n)]),
            lambda: rate_of(n, lambda: [server.client.xadd(STREAM, _fields("x")) for _ in range(n)]),
        )
        yield Reading("stream_send", ours, bare)


def consuming(server: BenchServer) -> Iterator[Reading]:
    """Messages per second consumed by an empty callback, and leased one by one."""
    n = server.many(MESSAGES)
    ours, bare = server.compare(
        lambda: rate_of(n, _on_filled_stream(server, n, _consume)),
        lambda: rate_of(n, _on_filled_stream(server, n, _bare_consume)),
    )
    yield Reading("stream_consume", ours, bare)
    n = server.many(ONE_BY_ONE)
    ours, bare = server.compare(
        lambda: rate_of(n, _on_filled_stream(server, n, _pull)),
        lambda: rate_of(n, _on_filled_stream(server, n, _bare_pull)),
    )
    yield Reading("stream_lease", ours, bare)


def relaying(server: BenchServer) -> Iterator[Reading]:
    """Messages per second that one relay moves from a queue into a stream."""
    n = server.many(MESSAGES)
    server.fill(n, 0)
    with DelayQueue(QUEUE, url=server.url) as queue:
        yield Reading("stream_relay", rate_of(n, lambda: Relay(queue, STREAM).run(burst=True)))
    if server.client.xlen(STREAM) != n:
        raise RuntimeError(f"the relay moved {server.client.xlen(STREAM)} of {n} messages")


def _fields(id: str) -> Any:
    return {"id": id, "payload": PAYLOAD, "retries": "3"}


def _bare_sends(server: BenchServer, n: int) -> None:
    for first in range(0, n, BATCH):
        with server.client.pipeline(transaction=False) as pipe:
            for number in range(first, first + BATCH):
                pipe.xadd(STREAM, _fields(f"{number:022}"))
            pipe.execute()


def _on_filled_stream(server: BenchServer, n: int, work: Callable[[BenchServer, int], None]) -> Callable[[], None]:
    """Fill a stream with `n` messages, and return a function that consumes all of them."""
    server.empty()
    server.client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    _bare_sends(server, n)

    def work_and_check() -> None:
        work(server, n)
        if server.client.xlen(STREAM):
            raise RuntimeError(f"{server.client.xlen(STREAM)} of {n} messages were left in the stream")

    return work_and_check


def _consume(server: BenchServer, _: int) -> None:
    with StreamQueue(STREAM, group=GROUP, url=server.url, callback=lambda _: None) as tasks:
        tasks.run(burst=True)


def _bare_consume(server: BenchServer, n: int) -> None:
    done = 0
    while done < n:
        ((_, found),) = server.client.xreadgroup(GROUP, "bare", {STREAM: ">"}, count=250)
        entries = [entry for entry, _ in found]
        with server.client.pipeline() as pipe:
            pipe.xack(STREAM, GROUP, *entries).xdel(STREAM, *entries).execute()
        done += len(entries)


def _pull(server: BenchServer, n: int) -> None:
    with StreamQueue(STREAM, group=GROUP, url=server.url) as tasks:
        for _ in range(n):
            with tasks.lease():
                pass


def _bare_pull(server: BenchServer, n: int) -> None:
    for _ in range(n):
        server.client.xautoclaim(STREAM, GROUP, "bare", 30_000, count=1)
        ((_, ((entry, _),)),) = server.client.xreadgroup(GROUP, "bare", {STREAM: ">"}, count=1)
        with server.client.pipeline() as pipe:
            pipe.xack(STREAM, GROUP, entry).xdel(STREAM, entry).execute()


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    return [
        Measurement(
            "stream_sends",
            sending,
            [
                Figure("stream_send_many", "stream: send_many", reference_name="commands"),
                Figure("stream_send", "stream: send, one by one", reference_name="commands"),
            ],
        ),
        Measurement(
            "stream_consumes",
            consuming,
            [
                Figure("stream_consume", "stream: empty callbacks", reference_name="commands"),
                Figure("stream_lease", "stream: lease and ack, one by one", reference_name="commands"),
            ],
        ),
        Measurement("stream_relays", relaying, [Figure("stream_relay", "relay: from queue to stream")]),
    ]
