"""A producer, of whichever version is on PYTHONPATH: `producer.py URL NAME VERSION-FOLDER COUNT KIND …`.

It sends messages of these kinds in turn, `COUNT` of each or, with 0, until the key `stop` is there. Before each call it
notes down what may come of it, and what must after it: so it may be killed at any time.
"""

import sys
import time
from itertools import count, repeat

from records import Expected, Records

import delayq
from delayq import DelayQueue, NewMessage

url, name, folder, rounds, *kinds = sys.argv[1:]
assert delayq.__file__.startswith(folder), delayq.__file__
records = Records(url)
queue = DelayQueue("mixed", url=url, default_retries=30)
SECOND = 1_000_000
LONG = 600.0
STORED = ("new", "replaced", "after")
later = []
"""What is to be redriven: when, and which message."""


def send(edition, kind, delay=0.0, *, certain=True, **options):
    """Send one message, and note down that it is to succeed once, unless that is not certain."""
    earliest = records.now() + round((delay or options.get("debounce", 0)) * SECOND)
    records.expect(edition, Expected(0, 1, earliest))
    sent = queue.send_delay_msg({"edition": edition, "kind": kind}, delay, **options)
    stored = int(sent.status in STORED)
    if certain:
        records.expect(edition, Expected(stored, stored, earliest))
    return sent


def sure(edition):
    """Note down that it is to succeed once after all."""
    records.expect(edition, Expected(1, 1, 0))


def never(edition, *, dead=False):
    """Note down that it must not succeed."""
    records.expect(edition, Expected(0, 0, 0, dead=dead))


def plain(id):
    send(id, "plain")


def delayed(id):
    send(id, "plain", 0.3, id=id)


def rescheduled(id):
    send(id, "plain", LONG, id=id, certain=False)
    earliest = records.now() + SECOND // 5
    records.expect(id, Expected(0, 1, earliest))
    assert queue.reschedule(id, 0.2) == "rescheduled"
    records.expect(id, Expected(1, 1, earliest))


def cancelled(id):
    send(id, "plain", LONG, id=id, certain=False)
    assert queue.cancel(id) == "cancelled"
    never(id)


def raced(id):
    send(id, "plain", id=id, certain=False)
    if queue.cancel(id) == "cancelled":
        never(id)
    else:
        sure(id)


def replaced(id):
    send(f"{id}.old", "plain", LONG, id=id, certain=False)
    assert send(id, "plain", 0.2, id=id, replace=True).status == "replaced"
    never(f"{id}.old")


def after(id):
    send(f"{id}.first", "plain", id=id, certain=False)
    if send(id, "plain", id=id, replace="after").status == "replaced":
        never(f"{id}.first")
    else:
        sure(f"{id}.first")


def debounced(id):
    send(f"{id}.old", "plain", id=id, debounce=0.3, certain=False)
    if send(id, "plain", id=id, debounce=0.3).status == "replaced":
        never(f"{id}.old")
    else:
        sure(f"{id}.old")


def named(id):
    send(id, "plain", name="named", id=id)


def headers(id):
    send(id, "headers", headers={"edition": id})


def prioritized(id):
    send(id, "plain", priority=5, id=id)


def unique(id):
    earliest = records.now() + SECOND // 10
    send(id, "plain", 0.1, unique="payload")
    records.expect(id, Expected(1, 2, earliest))
    again = int(queue.send_delay_msg({"edition": id, "kind": "plain"}, 0.1, unique="payload").new)
    records.expect(id, Expected(1 + again, 1 + again, earliest))


def retained(id):
    send(id, "plain", id=id, retention="10m")


def expiring(id):
    send(id, "plain", id=id, expires="1h", timeout="1m")


def retried(id):
    send(id, "retried", id=id)


def snoozed(id):
    send(id, "snoozed", id=id)


def rejected(id):
    send(id, "rejected", id=id)


def discarded(id):
    send(id, "discarded", id=id)


def limited(id):
    send(id, "limited", name="limited", id=id)


def dying(id):
    send(id, "dying", id=id, retries=1, certain=False)
    never(id, dead=True)


def killed(id):
    send(id, "plain", LONG, id=id, certain=False)
    assert queue.kill(id) == "killed"
    never(id, dead=True)


def redriven(id):
    send(id, "redriven", id=id, retries=0, certain=False)
    later.append((time.monotonic() + 0.5, id))


def many(id):
    delays = [0.0, 0.0, 0.1, 0.2]
    at = records.now()
    earliest = {f"{id}.{number}": at + round(delay * SECOND) for number, delay in enumerate(delays)}
    for edition, time_ in earliest.items():
        records.expect(edition, Expected(0, 1, time_))
    queue.send_many(
        [
            NewMessage({"edition": edition, "kind": "plain"}, delay)
            for edition, delay in zip(earliest, delays, strict=True)
        ]
    )
    for edition, time_ in earliest.items():
        records.expect(edition, Expected(1, 1, time_))


def repeated(id):
    send(id, "plain", id=id)
    send(f"{id}.again", "plain", id=id)


def paused(id):
    queue.pause("1s")
    send(id, "plain", id=id)
    queue.resume()


def special(id):
    with DelayQueue("mixed", url=url, events=True, dedupe_window="10s") as declared:
        declared.limits.set("limited", rate_limit="200/s", running=2)
    prioritized(id)


def logged(id):
    with DelayQueue("mixed", url=url, events=bool(int(id.split("-")[-2]) % 2)) as declared:
        declared.pause(0.05)
    send(id, "plain")


def slow(id):
    send(id, "slow", id=id)


def examined(_):
    found = {finding.kind for finding in queue.examine(deep=True).findings if finding.count}
    strange = {"unknown field"} if name.startswith("old") else set()  # call slots, which it does not know in `meta`
    assert found <= {"server"} | strange, found


def held(id):
    send(id, "held", id=id)


def redrive(*, patient):
    """Redrive what is dead by now; be patient at the end."""
    while later and (patient or later[0][0] < time.monotonic()):
        due, id = later.pop(0)
        records.client.sadd("cured", id)
        records.expect(id, Expected(0, 1, 0))
        if queue.dead.redrive(id).redriven or queue.get(id) is None:
            records.expect(id, Expected(1, 1, 0))
        else:
            later.append((due + 0.5, id))
            time.sleep(0.01)


records.client.rpush("started", name)
number = count()
for _ in repeat(None, int(rounds)) if int(rounds) else iter(lambda: records.client.exists("stop"), 1):
    for kind in kinds:
        globals()[kind](f"{name}-{next(number)}-{kind}")
        time.sleep(0.003)
    redrive(patient=False)
if not int(rounds):
    redrive(patient=True)
queue.close()
