"""What makes room in a full Redis works on a full Redis: each remedy, as a new process has it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from delayq import DelayQueue, NewMessage, QueueFullError
from delayq.broker.keys import Keys
from delayq.cli import main

pytestmark = pytest.mark.faults
KEYS = Keys.of("delayq", "letters")

REMEDIES = {
    "cancel": ("cancel letters waits-0 waits-1", "messages"),
    "kill": ("kill letters waits-0 --yes", "pending"),
    "purge": ("purge letters --yes", "messages"),
    "forget": ("forget letters --id-prefix ends --yes", "done"),
    "dead purge": ("dead purge letters --all --yes", "dead_messages"),
    "dead redrive": ("dead redrive letters --all --yes", "dead_messages"),
    "events off": ("events letters --off", None),
    "shorter log": ("events letters --on --max-len 1000", "events"),
    "pause": ("pause letters", None),
    "resume": ("resume letters", None),
    "remove a schedule": ("schedules remove letters daily", "schedule_specs"),
    "remove a limit": ("limits remove letters", "limits"),
    "repair": ("doctor letters --repair", None),
    "run now": ("run-now letters waits-0", None),
    "reschedule": ("reschedule letters waits-0 --delay 2h", None),
    "worker": ("worker --queue letters --deliver log --burst", None),
    "remove a queue": ("remove empty --yes", None),
    "cold tier": ("cold letters cold", "messages"),
    "remove what no archive needs": ("archive letters /nowhere --forget", "archives"),
}
"""What makes room or lets work go on, as command, and the structure that is smaller then."""
UNHEALTHY = {"repair"}
"""The doctor still tells that Redis is full."""


@pytest.fixture
def full(start_redis):
    """A full Redis with a queue that has some of everything; all of its connections are closed."""
    server = start_redis()
    with DelayQueue("empty", url=server.url) as empty:
        empty.open()
    with DelayQueue("letters", url=server.url, events=True, dedupe_window="1h") as queue:
        queue.send_many([NewMessage("x" * 5000, delay="1h", id=f"waits-{n}") for n in range(20)])
        queue.send_many([NewMessage("x", delay="30d", id=f"far-{n}") for n in range(20)])
        queue.send_many([NewMessage("x" * 5000, id=f"ends-{n}", retries=0) for n in range(20)])
        queue.schedules.add("daily", cron="0 9 * * *", payload="x")
        queue.limits.set(running=3)

        @queue.callback
        def failing(message):
            raise ValueError("no such address")

        queue.run(burst=True)
    with server.client() as client:
        pipeline = client.pipeline()
        for n in range(3000):
            pipeline.xadd(KEYS.events, {"kind": "sent", "at": 1000 + n, "ids": "m"}, id="0-*")
        pipeline.hset(KEYS.archives, "query", "1 /nowhere")
        pipeline.execute()
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
    with DelayQueue("letters", url=server.url, deadline="300ms") as queue, pytest.raises(QueueFullError):
        queue.send_delay_msg("x", "1h")
    return server


def size(client, name):
    key = getattr(KEYS, name)
    count = {"hash": client.hlen, "zset": client.zcard, "stream": client.xlen, "none": lambda _: 0}
    return count[client.type(key).decode()](key)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_remedy_works_on_a_full_redis(full, remedy, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    command, structure = REMEDIES[remedy]
    with full.client() as client:
        before = structure and size(client, structure)
        ended = CliRunner().invoke(main, command.split(), env={"DELAYQ_URL": full.url}, prog_name="delayq")
        assert isinstance(ended.exception, SystemExit | None)
        assert ended.exit_code == (4 if remedy in UNHEALTHY else 0), ended.output
        assert structure is None or size(client, structure) < before


def test_position_that_a_full_redis_refuses_prevents_no_trimming(full, caplog, tmp_path):
    pytest.importorskip("pyarrow")
    from delayq.archive import archive

    folder = str(tmp_path / "archive")
    with full.client() as client:
        client.delete(KEYS.archives)
        before = size(client, "events")
        result = archive("letters", folder, url=full.url, trim=True, keep=10)
        assert size(client, "events") == before - result.trimmed < before
        assert f"Redis is full: it does not know yet how far the archive {folder} is" in caplog.text
        client.config_set("maxmemory", 0)
        archive("letters", folder, url=full.url)
        assert list(client.hgetall(KEYS.archives).values()) == [f"{result.last} {folder}".encode()]
