"""What is cold takes no memory of Redis: a year of reminders of which a week is there."""

from __future__ import annotations

import pytest

from delayq import DelayQueue, NewMessage
from delayq.bulk import move_cold

pytestmark = [pytest.mark.long]

MESSAGES, LOAD = 100_000, 5_000
YEAR = 365 * 86_400
SHARE = 20


def test_a_year_of_which_a_week_stays_takes_a_twentieth(start_redis, tmp_path):
    server = start_redis()
    with DelayQueue("q", url=server.url, codec="bytes") as queue, server.client() as client:

        def used():
            client.memory_purge()
            return client.info("memory")["used_memory"]

        queue.send(b"x", delay="30d")
        move_cold("q", tmp_path / "cold", url=server.url)  # so that the scripts, which are half a megabyte, are there
        queue.purge()
        nothing = used()
        for first in range(0, MESSAGES, LOAD):
            numbers = range(first, first + LOAD)
            queue.send_many(
                [NewMessage(b'{"visit": %d, "text": "tomorrow"}' % n, delay=n * YEAR // MESSAGES) for n in numbers]
            )
        warm = used() - nothing
        assert warm > 100 * MESSAGES
        moved = move_cold("q", tmp_path / "cold", url=server.url)
        cold = used() - nothing
    assert len(moved.unknown) == 1, "what was purged"
    assert moved.cold == moved.spilled > MESSAGES * 0.97
    assert cold <= warm / SHARE, f"{warm:,} bytes, then {cold:,}"
