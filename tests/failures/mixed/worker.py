"""A worker, of whichever version is on PYTHONPATH: `worker.py URL NAME VERSION-FOLDER`."""

import signal
import sys
import threading
import time
from datetime import UTC, datetime

from records import End, Records, Start

import delayq
from delayq import DelayQueue, Discard, Reject, Snooze

url, name, folder = sys.argv[1:]
assert delayq.__file__.startswith(folder), delayq.__file__
records = Records(url)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def work(message):
    """Note down the start and the effect, and between them do what the kind of the message says."""
    edition, kind = message.payload["edition"], message.payload["kind"]
    at, due = records.now(), (message.due - EPOCH).total_seconds() * 1_000_000
    records.add(Start(edition, name, message.attempt, message.token, at, round(due), message.retries_left))
    fails = {
        "retried": message.attempt < 3,
        "dying": True,
        "redriven": not records.client.sismember("cured", edition),
    }
    wrong = RuntimeError("meant to fail") if fails.get(kind) else None
    if kind == "snoozed" and not message.snoozes:
        wrong = Snooze(0.1)
    if kind == "headers":
        assert message.headers == {"edition": edition}, message.headers
    if kind in {"limited", "slow"}:
        time.sleep(0.01)
    if kind == "held" and not records.client.exists("go"):
        records.client.rpush("held", name)
        time.sleep(60)  # until it is killed
    records.add(End(edition, name, message.attempt, message.token, records.now(), done=not wrong))
    if wrong:
        raise wrong
    if kind == "slow":
        time.sleep(0.03)
    if kind == "rejected":
        raise Reject("meant to be rejected")
    if kind == "discarded":
        raise Discard
    return edition


queue = DelayQueue("mixed", url=url, callback=work, lease="4s", nack_delay="100ms")
for one in ("named", "limited"):
    queue.on(one)(work)
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
queue.start_consume()
records.client.rpush("started", name)
stopped.wait()
queue.stop_consume()
