"""What stands in a queue, without times and tokens, so that two runs can be compared; and whether it is in order."""

from __future__ import annotations

from typing import Any

from delayq.broker.calls import Calls
from delayq.broker.transport.executor import Executor
from delayq.queue.inspecting.deaths import read_death
from delayq.queue.inspecting.event_log import expand
from tests.model.scan import Scan, each_id_has_one_place, read

DAY = 86_400_000
_MARKS = (
    "token",
    "dedupe",
    "events",
    "schema",
    "identity",
    "slot_cursor",
    "schedules_at",
    "schedules_zones",
    "priority_step",
)


def standing(executor: Executor, calls: Calls) -> dict[str, Any]:
    """Return everything but times, tokens, and ids that the queue made itself; fails if it is not in order."""
    scan = read(executor, calls)
    in_order(scan)
    names = {id: id if len(id) < 10 else "made" for id in scan.messages}
    return {
        "messages": sorted(
            (
                names[id],
                payload,
                scan.retries.get(id, b"3"),
                _told(scan.deliveries.get(id)),
                scan.headers.get(id),
                scan.attributes.get(id),
                _place(scan, id),
            )
            for id, payload in scan.messages.items()
        ),
        "successors": sorted((id, stored.partition(b" ")[2]) for id, stored in scan.successors.items()),
        "errors": sorted(scan.errors.items()),
        "lists": [[names.get(id, id) for id in ids] for ids in (scan.ready, scan.retry, scan.wake)],
        "dead": sorted(
            (entry.partition(":")[0], death.reason, death.error, death.attempts, death.payload)
            for entry, stored in scan.dead_messages.items()
            for death in [read_death(stored)]
        ),
        "schedules": _schedules(executor, calls),
        "done": sorted(scan.done),
        "runs": sorted((run, record.split()[0], record.split()[3:]) for run, record in scan.runs.items()),
        "totals": {name: number for name, number in scan.counts.meta.items() if name not in _MARKS and number != "0"},
        "events": [
            (event.kind, names.get(event.id or "", event.id)) for entry in scan.events for event in expand(entry)
        ],
    }


def _schedules(executor: Executor, calls: Calls) -> list[Any]:
    """Return name, whether it goes on, messages fired, whether it is paused, and definition of each schedule."""
    client, keys = executor.client, calls.keys
    states, specs = client.hgetall(keys.schedule_states), client.hgetall(keys.schedule_specs)
    assert states.keys() == specs.keys()
    going = client.zrange(keys.schedules, 0, -1)
    return [
        (name, name in going, int(state.split()[1]), state.split()[3], specs[name])
        for name, state in sorted(states.items())
    ]


def in_order(scan: Scan) -> None:
    """Each id is in exactly one place, and the counts are those of what is there."""
    each_id_has_one_place(scan)
    counts, states = scan.counts, [record.split()[0] for record in scan.deliveries.values()]
    assert counts.messages == len(scan.messages)
    assert scan.retries.keys() <= scan.messages.keys()
    # What is due counts as ready, promoted or not.
    waiting = len(scan.pending) + len(scan.offered("ready")) + len(scan.ranked)
    assert (counts.pending + counts.ready, counts.retry) == (waiting, len(scan.offered("retry")))
    assert (counts.active, counts.backoff) == (states.count(b"leased"), states.count(b"backoff"))
    assert counts.garbage == len(scan.garbage)
    assert (
        counts.dead == len(scan.dead) == len(scan.dead_messages) == sum(len(t.split()) for t in scan.dead_ids.values())
    )


def finish(executor: Executor, calls: Calls) -> None:
    """Let another consumer come long after and finish everything that lives: each message once, and none is left.

    A message that another waits for is finished twice.
    """
    before = read(executor, calls)
    living, followed = set(before.messages), set(before.successors)
    now = executor.call(calls.time())
    finished: list[str] = []
    for turn in range(1, 5):
        later = Calls(calls.keys, clock=lambda turn=turn: now + turn * 100 * 365 * DAY)
        executor.call(later.pending_to_ready())
        executor.call(later.unack_to_retry())
        executor.call(later.collect_garbage(limit=100, dead_max=10_000, dead_ttl=10**15, slot_ttl=10**15))
        claimed = executor.call(later.ready_to_unack(1000, lease=DAY, consumer_id="another"))
        receipts = [(one.id, one.token) for one in claimed.messages]
        if receipts:
            assert set(executor.call(later.ack(receipts))) == {"1"}
        finished += [id for id, _ in receipts]
    scan = read(executor, calls)
    in_order(scan)
    assert not scan.messages
    assert not scan.successors
    assert all(finished.count(id) == 1 + (id in followed) for id in finished), "not each once, and what follows it once"
    buried = {entry.partition(":")[0] for entry in scan.dead}
    assert set(finished) | buried >= living


def _told(record: bytes | None) -> Any:
    if record is None:
        return None
    state, _, attempts, *_ = record.split()
    return state, attempts


def _place(scan: Scan, id: str) -> str:
    return next(
        place for place in ("pending", "ranked", "unack", "garbage", "ready", "retry") if id in getattr(scan, place)
    )
