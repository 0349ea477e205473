"""Editing while messages are promoted: after `edited`, what a message had before is never delivered."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from delayq import NewMessage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

MESSAGES = 400


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("options", [{}, {"events": True}], ids=["plain queue", "with an event log"])
def test_edited_message_is_delivered_as_it_was_edited(open_queue, options):
    started: dict[str, list[str]] = defaultdict(list)
    queue = open_queue(
        callback=lambda message: started[message.id].append(message.payload), concurrency=2, prefetch=4, **options
    )
    other = open_queue(**options)
    queue.start_consume()
    ids = other.send_many([NewMessage("before", delay=random.uniform(0, 2), id=f"{n}") for n in range(MESSAGES)]).ids
    edits = {id: other.edit(id, payload="after") for id in ids}
    wait_until(lambda: queue.counts().living == 0, 60)
    assert queue.stop_consume()

    told = Counter(edits.values())
    assert set(told) <= {"edited", "running", "gone"}
    assert told["edited"] > 20
    assert told["gone"] + told["running"] > 0
    assert {id: started[id] for id in ids} == {id: ["after" if edits[id] == "edited" else "before"] for id in ids}
