"""Take the picture of the dashboard that the README shows: a queue with something of everything, in a real browser.

scripts/picture.py            write delayq/docs/dashboard.png
"""

from __future__ import annotations

import logging
import math
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import uvicorn
from playwright.sync_api import Browser, Error, Playwright, sync_playwright

from delayq import DelayQueue, Message, NewMessage, Reject
from delayq.broker.keys import Keys
from delayq.broker.stored_presence import BUCKETS, HOUR, HourCounts, write_counts
from delayq.testing.redis_server import RedisServer
from delayq.web import web_app

PICTURE = Path(__file__).resolve().parents[1] / "delayq" / "docs" / "dashboard.png"
PAGE = "/queue?queue=orders"
WIDTH, HEIGHT = 1100, 760
BUSY = 20.0
"""Seconds for which the workers of the picture have something to do."""
RATE = 40
"""Messages a second meanwhile."""


def deliver(message: Message[Any]) -> None:
    """Stand in for real work: most orders are fine."""
    time.sleep(0.01)
    number = message.payload["order"]
    if number % 97 == 0:
        raise Reject(f"no customer {number}")
    if number % 41 == 0:
        raise TimeoutError(f"bank-{number % 5}.example.com:443 did not answer")


def fill(queue: DelayQueue[Any]) -> None:
    """Send what waits, and what is due in the next seconds."""
    names = ["invoice", "reminder", "parcel"]
    waiting = [NewMessage({"order": n}, delay=f"{n * 7}m", name=names[n % 3]) for n in range(1_240)]
    soon = [
        NewMessage({"order": n}, delay=2 + n / RATE, retries=n % 2, name=names[n % 3])
        for n in range(int((BUSY + 5) * RATE))
    ]
    queue.send_many(waiting + soon)
    queue.schedules.add("daily-digest", every="1d", payload={"order": 1})


def remember_two_days(url: str) -> None:
    """Put two days of deliveries into the history, most of them by day, as no picture can wait for them."""
    now = int(time.time() * 1000) // HOUR
    hours = {}
    for back in range(1, 48):
        done = int(900 + 800 * math.sin((now - back) % 24 / 24 * 2 * math.pi - math.pi / 2))
        late = (done - done // 50, done // 60, *[0] * (BUCKETS - 2))
        hours[str(now - back)] = write_counts(HourCounts(done, done, 0, done // 90, 0, 0, done, done * 12_000, late))
    with redis.Redis.from_url(url) as client:
        client.hset(Keys.of("delayq", "orders").history, mapping={**hours, "first": str(now - 47)})


@contextmanager
def served(url: str) -> Iterator[str]:
    """Serve the dashboard; yield its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(web_app(url=url, write=True), log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = server.force_exit = True
    thread.join()


def browser(playwright: Playwright) -> Browser:
    """Open Playwright's Chromium, or the one of the system."""
    for program in (None, shutil.which("chromium"), shutil.which("google-chrome")):
        try:
            return playwright.chromium.launch(executable_path=program, chromium_sandbox=False)
        except Error as error:
            refused = error
    raise SystemExit(f"picture: no Chromium, see scripts/ensure-browser: {refused}")


def main() -> None:
    """Take the picture."""
    logging.disable()
    with RedisServer() as server, DelayQueue("orders", url=server.url, concurrency=4, nack_delay="1h") as queue:
        for name in ("invoice", "reminder", "parcel"):
            queue.on(name)(deliver)
        fill(queue)
        remember_two_days(server.url)
        queue.start_consume()
        with served(server.url) as address, sync_playwright() as playwright:
            page = browser(playwright).new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            page.goto(address + PAGE)
            page.wait_for_timeout(1000 * BUSY)
            page.reload()
            page.wait_for_timeout(3000)
            page.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
