"""Runs of `delayq torture` find defects planted in a copy of the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import delayq
from tests.torture.running import LONG, run

DEFECTS = {
    "an ack that any token of an earlier life wins": (
        "fencing",
        "broker/lua/lib/receipt.lua",
        "\n    and tonumber(first) <= tonumber(token) and tonumber(token) <= tonumber(last)",
        "",
    ),
    "a nack that keeps its place": (
        "limits",
        "broker/lua/settle/nack.lua",
        "  free_places(running, gates, wake, again, true)\n",
        "",
    ),
    "a start after the end of the lease": (
        "leases",
        "worker/drivers/work_buffer.py",
        "if delivery.lost or started > delivery.deadline:",
        "if False:",
    ),
    "a heartbeat that skips what has not started": (
        "leases",
        "worker/parts/heartbeat.py",
        "if not delivery.settled and delivery.deadline <= until",
        "if delivery.batch is not None and not delivery.settled and delivery.deadline <= until",
    ),
    "a cancellation that leaves the successor": (
        "bounded deliveries",
        "broker/lua/control/cancel.lua",
        "if #dropped > 0 then redis.call('HDEL', successors, unpack(dropped)) end",
        "",
    ),
    "senders that are told of each other's messages": (
        "answers",
        "queue/sending/group_commit.py",
        "for one, sent in zip(group, self._store(",
        "for one, sent in zip(group[::-1], self._store(",
    ),
    "a promotion that drops an id": (
        "liveness",
        "broker/lua/claim/pending_to_ready.lua",
        "redis.call('RPUSH', ready, unpack(listed))",
        "redis.call('RPUSH', ready, unpack(listed, 1, math.max(1, #listed - 1)))",
    ),
    "a claim that leaves its ids in ready": (
        "leftovers",
        "broker/lua/claim/lib/sources.lua",
        "redis.call('LTRIM', source.key, source.scanned, -1)",
        "redis.call('LLEN', source.key)",
    ),
    "a nack that compares no token": (
        "fencing",
        "broker/lua/settle/nack.lua",
        "state == 'leased' and token == ARGV[at + 1] and not seen[id]",
        "state == 'leased' and not seen[id]",
    ),
    "messages that start as soon as they are claimed ahead": (
        "never early",
        "worker/parts/ahead.py",
        "one.claimed.due * 1000 - reply.micros) / 1e6 * (1 + SLEW), one)",
        "one.claimed.due * 0), one)",
    ),
    "an expired lease that costs no retry": (
        "bounded deliveries",
        "broker/lua/claim/unack_to_retry.lua",
        "retry_counts[#retry_counts + 1], retry_counts[#retry_counts + 2] = id, math.max(left - 1, 0)",
        "retry_counts[#retry_counts + 1], retry_counts[#retry_counts + 2] = id, left",
    ),
    "an expired lease that counts no attempt": (
        "bounded deliveries",
        "broker/lua/claim/unack_to_retry.lua",
        "elseif state == 'leased' and (mark_of(consumer) or '+') ~= '+' then",
        "elseif state == 'leased' then",
    ),
}
FAULTS = ("--messages", "12000", "--faults", "kill=4,stop=6,replies=40")

SEED = "3"
SEEDS = {"a heartbeat that skips what has not started": "5"}
"""Seeds of single defects: with 3, the only worker that holds messages for longer than a lease is killed early."""
PLAIN = {"messages that start as soon as they are claimed ahead": ["--plain"]}
"""Defects that show where a consumer needs a single call a turn."""

PACKAGE = Path(delayq.__file__).parent


def test_every_defect_can_be_planted():
    lost = [name for name, (_, file, right, _) in DEFECTS.items() if right not in (PACKAGE / file).read_text("utf-8")]
    assert not lost, "the code has changed: say anew where these are planted"


@pytest.mark.torture
@LONG
@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defect_is_found(tmp_path, defect):
    rule, file, right, wrong = DEFECTS[defect]
    copy = tmp_path / "copy"
    shutil.copytree(PACKAGE, copy / "delayq", ignore=shutil.ignore_patterns("__pycache__"))
    source = (copy / "delayq" / file).read_text("utf-8")
    (copy / "delayq" / file).write_text(source.replace(right, wrong), "utf-8")
    (tmp_path / "run").mkdir()
    code, tally, _ = run(
        *(tmp_path / "run", "--seed", SEEDS.get(defect, SEED), *FAULTS, *PLAIN.get(defect, ())),
        PYTHONPATH=str(copy),
        PYTHONSAFEPATH="1",
    )
    assert (code, tally["right"]) == (1, False)
    assert rule in tally["failed_rounds"][0]["verdict"]["broken"]
