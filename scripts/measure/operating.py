"""What an operator does: a scrape of 1,000 queues, export and import, a probe, and looking at a deep queue."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delayq import DelayQueue
from delayq.bulk import export_messages, import_messages
from delayq.metrics import QueueCollector
from delayq.queue.inspecting.inspector import MAX_READ
from delayq.queue.sweeps.stored_messages import PAGE_BYTES, snapshot_call
from delayq.web import web_app
from measure.bench_server import QUEUE, TEXT, BenchServer, rate_of, seconds_of
from measure.figure import MILLISECONDS, Figure, Goal, Measurement, Reading, at_least, at_most
from measure.raw import batches

QUEUES = 1000
TURNS = 5
PROBES = 11
"""New processes per round; the reading is their median."""
PROBE_TIME, PROBE_RATIO = 150, 1.3
HEALTH = "from delayq.cli import main; main()"
"""What the command `delayq` does."""
MESSAGES = 100_000
PAGES = ("/", f"/queue?queue={QUEUE}", f"/messages?queue={QUEUE}", f"/forecast?queue={QUEUE}", f"/dead?queue={QUEUE}")


def scraping(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds of a scrape of many queues."""
    server.empty()
    for number in range(QUEUES):
        with DelayQueue(f"queue-{number}", redis=server.client) as queue:
            queue.send_many([TEXT] * 3, delay=60)
    collector = QueueCollector(url=server.url)
    took = [1000 * seconds_of(lambda: list(collector.collect())) for _ in range(TURNS)]
    collector.close()
    yield Reading("scrape", statistics.median(took))


def probing(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds of `delayq health`, from the start of its process to its exit, beside one that imports redis-py.

    That takes longest, and how long depends on what else is installed.
    """
    _fill(server, 1)
    health, redis = ["-c", HEALTH, "--url", server.url, "health", QUEUE], ["-c", "import redis"]
    _run(health), _run(redis)  # compiles the modules, and fills the file cache
    whole, bare = [], []
    for _ in range(PROBES if server.scale >= 1 else 3):
        whole.append(1000 * seconds_of(lambda: _run(health)))
        bare.append(1000 * seconds_of(lambda: _run(redis)))
    yield Reading("health", statistics.median(whole), statistics.median(bare))


def _run(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], check=True, capture_output=True)


def through_a_file(server: BenchServer) -> Iterator[Reading]:
    """Messages per second that are exported to a file and imported from it, compared with what reads and sends them."""
    n = server.many(MESSAGES)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "messages.jsonl"
        yield Reading("exported", *server.compare(lambda: _export(server, n, file), lambda: _read(server, n)))
        yield Reading("imported", *server.compare(lambda: _import(server, n, file), lambda: _send(server, n)))


def _fill(server: BenchServer, n: int) -> None:
    server.empty()
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.send_many([TEXT] * n, delay=3600)


def _export(server: BenchServer, n: int, file: Path) -> float:
    _fill(server, n)
    rate = rate_of(n, lambda: export_messages(QUEUE, file, url=server.url))
    if len(file.read_bytes().splitlines()) != n:
        raise AssertionError("some messages were not exported")
    return rate


def _read(server: BenchServer, n: int) -> float:
    """Read the same pages over the bare connection."""
    _fill(server, n)

    def read() -> None:
        cursor, score = "", ""
        while True:
            call = snapshot_call(server.calls, "", limit=MAX_READ, cursor=cursor, score=score, byte_limit=PAGE_BYTES)
            page = server.raw.call(call)
            cursor, score = page.cursor.decode(), page.score.decode()
            if not cursor:
                return

    return rate_of(n, read)


def _import(server: BenchServer, n: int, file: Path) -> float:
    server.empty()
    if not file.exists():
        _export(server, n, file)
        server.empty()
    rate = rate_of(n, lambda: import_messages(file, QUEUE, url=server.url))
    with DelayQueue(QUEUE, url=server.url) as queue:
        if queue.counts().pending != n:
            raise AssertionError("some messages were not imported")
    return rate


def _send(server: BenchServer, n: int) -> float:
    server.empty()
    return rate_of(n, lambda: server.raw.stream(batches(server.calls, n)))


def looking(server: BenchServer, depth: str) -> Iterator[Reading]:
    """Milliseconds of `stats` and of the slowest page of the dashboard, of a queue that has been filled."""
    with DelayQueue(QUEUE, url=server.url) as queue:
        queue.open()  # so that it is among the queues
        took = [1000 * seconds_of(queue.stats) for _ in range(TURNS)]
    yield Reading(f"stats_{depth}", statistics.median(took))
    pages = asyncio.run(_load_pages(web_app(url=server.url)))
    slowest = max(pages, key=lambda page: pages[page])
    yield Reading(f"page_{depth}", pages[slowest], note=slowest)


async def _load_pages(app: Any) -> dict[str, float]:
    """Return the median milliseconds of each page, in this process."""
    import httpx

    transport = httpx.ASGITransport(app)
    loop = asyncio.get_running_loop()
    found = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for page in PAGES:
            took = []
            for _ in range(TURNS + 1):
                began = loop.time()
                (await client.get(page)).raise_for_status()
                took.append(1000 * (loop.time() - began))
            found[page.partition("?")[0]] = statistics.median(took[1:])  # the first loads its template
    app.state.site.source.close()
    return found


def looking_figures(depth: str, title: str) -> list[Figure]:
    """Return the figures of `looking`."""
    return [
        Figure(f"stats_{depth}", f"`stats`, {title} pending", at_most(50, MILLISECONDS), MILLISECONDS),
        Figure(f"page_{depth}", f"slowest page, {title} pending", at_most(100, MILLISECONDS), MILLISECONDS),
    ]


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    goal: Goal = at_least(0.5)
    files = [Figure("exported", "`delayq export`", goal), Figure("imported", "`delayq import`", goal)]
    scrape = Figure("scrape", f"scrape of {QUEUES:,} queues", at_most(500, MILLISECONDS), MILLISECONDS)
    # Where loading redis-py alone takes longer than that, what delayq adds is what counts.
    within = Goal(
        f"≤ {PROBE_TIME}{MILLISECONDS}, or {PROBE_RATIO:g} of `import redis`",
        lambda figure: figure.median <= PROBE_TIME or (figure.ratio is not None and figure.ratio <= PROBE_RATIO),
    )
    probe = Figure("health", "`delayq health`, the whole process", within, MILLISECONDS, "`import redis`", cost=True)
    return [
        Measurement("files", through_a_file, files),
        Measurement("probing", probing, [probe]),
        Measurement("scraping", scraping, [scrape], once=True),
    ]
