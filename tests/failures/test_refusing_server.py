"""A server that refuses to store messages: the doctor, `health` and the exporter say so, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from delayq import DelayqError, QueueFullError
from delayq.cli.app import main
from delayq.metrics import QueueCollector
from delayq.queue.repairing.repair_report import FindingKind
from tests.metrics.samples import samples_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


@pytest.fixture
def server(start_redis):
    return start_redis("--appendonly", "yes", "--appendfsync", "no", "--enable-protected-configs", "yes")


def fill(client, _):
    client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)


def fail_snapshots(client, server):
    folder = Path(server.folder, "gone")
    folder.mkdir()
    client.config_set("dir", str(folder))
    client.config_set("save", "3600 1")
    folder.rmdir()
    client.bgsave()
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")


def demand_replicas(client, _):
    client.config_set("min-replicas-to-write", 1)


def follow(client, _):
    client.execute_command("REPLICAOF", "127.0.0.1", "1")


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (fill, "Redis is full (used "),
        (fail_snapshots, "the last snapshot of Redis failed"),
        (demand_replicas, "0 replicas are in step, and min-replicas-to-write asks for 1"),
        (follow, "this Redis is a read-only replica of 127.0.0.1:1"),
    ],
)
def test_refused_writes_are_told_by_whatever_looks_at_the_server(open_queue, server, spoil, said):
    queue = open_queue(url=server.url, deadline="300ms")
    queue.send_delay_msg("x", "1h")
    assert queue.examine().findings == ()
    with server.client() as client:
        spoil(client, server)
    with pytest.raises(DelayqError):
        queue.send_delay_msg("x", "1h")

    (finding,) = queue.examine().findings
    assert (finding.kind, finding.text.startswith(said)) == (FindingKind.SERVER, True)
    for command in ("doctor", "health"):
        ended = CliRunner().invoke(main, ["--url", server.url, command, queue.name], prog_name="delayq")
        assert (ended.exit_code, said in ended.stdout) == (4, True)
    collector = QueueCollector(url=server.url)
    assert samples_of(collector)["delayq_redis_refuses_writes"] == 1
    collector.close()


def test_redis_that_is_nearly_full_is_told_and_health_goes_on(open_queue, server):
    queue = open_queue(url=server.url)
    queue.send_delay_msg("x", "1h")
    with server.client() as client:
        client.setrange("ballast", 20 << 20, b"x")
        used = client.info("memory")["used_memory"] - client.info("memory")["mem_not_counted_for_evict"]
        client.config_set("maxmemory", int(used / 0.93))
    (finding,) = queue.examine().findings
    assert finding.text.startswith("Redis is nearly full (used ")
    assert not queue.examine().healthy
    ended = CliRunner().invoke(main, ["--url", server.url, "health", queue.name], prog_name="delayq")
    assert ended.exit_code == 0
    collector = QueueCollector(url=server.url)
    found = samples_of(collector)
    collector.close()
    assert found["delayq_redis_refuses_writes"] == 0
    assert 0.9 < found["delayq_redis_memory_used_bytes"] / found["delayq_redis_memory_max_bytes"] < 1


def test_login_without_info_learns_what_is_not_known(open_queue, server):
    open_queue(url=server.url).send_delay_msg("x", "1h")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "looker", "on", ">secret", "~*", "&*", "+@all", "-info")
    queue = open_queue(url=server.url.replace("unix://", "unix://looker:secret@"))
    (finding,) = queue.examine().findings
    assert (finding.kind, finding.count) == (FindingKind.SERVER, 0)
    assert finding.text.startswith("INFO may not be read with this login")
    assert queue.examine().healthy


@pytest.mark.long
def test_full_redis_forgets_and_refuses_an_edit(open_queue, server):
    queue = open_queue(url=server.url, deadline="300ms", events=True, dedupe_window="1h")
    for id in ("waits", "ends"):
        queue.send_delay_msg("x", "1h", id=id)
    queue.cancel("ends")
    other = open_queue(url=server.url, deadline="300ms")
    with server.client() as client:
        fill(client, server)

    with pytest.raises(QueueFullError):
        other.edit("waits", payload="y" * 100)
    assert other.get("waits").payload == "x"
    found = other.forget("ends")
    assert (found.reserved, found.events) == (1, 2)
    assert other.forget("ends").events == 0
