"""The ordinary day of `scripts/bench_peers.py`: what adapters report of it, the cost of a server, a slow network."""

import sys
import time
from pathlib import Path

import pytest
import redis
from peers.adapters import ADAPTERS, FailedError, run_adapter
from peers.delay_proxy import DelayProxy
from peers.server_cost import ServerCost

from tests.support.redis_server import RedisServer

PYTHON = Path(sys.executable)


@pytest.fixture
def tcp_url():
    """The URL of a server of its own, since not every peer takes a unix socket."""
    with RedisServer(tcp=True) as server:
        yield server.url


@pytest.mark.long
@pytest.mark.parametrize(("work", "n"), [("flow", 40), ("slow", 40), ("idle", 1)])
def test_delayq_adapter_reports_the_cost_of_the_ordinary_day(tcp_url, work, n):
    reply = run_adapter(PYTHON, ADAPTERS / "delayq_peer.py", work, n, tcp_url)
    assert list(reply) == ["cpu", "commands"]
    assert 0 <= reply["cpu"] < 30
    assert 0 <= reply["commands"] < 10_000
    assert work == "idle" or reply["commands"] > n


@pytest.mark.long
def test_failure_of_the_sender_of_a_flow_is_the_reason(adapter, tcp_url):
    path = adapter(f"""
import sys
sys.path.insert(0, {str(ADAPTERS)!r})
import measuring

class FakePeer:
    def __init__(self, url):
        pass
    def send(self, texts):
        self.texts = texts
    def send_later(self, dues):
        raise ValueError("too late")
    def work(self):
        measuring.handled(self.texts[0])

measuring.main(FakePeer)
""")
    with pytest.raises(FailedError, match=r"^ValueError: too late$"):
        run_adapter(PYTHON, path, "flow", 2, tcp_url)


@pytest.mark.parametrize(
    "method",
    [
        "def send(self, texts):\n        len(texts) == 1 or self.barrier.wait(30)",
        "@measuring.on_loop\n    async def send(self, texts):\n        len(texts) == 1 or await self.all_eight()",
    ],
    ids=["threads", "tasks"],
)
def test_eight_producers_send_at_a_time(adapter, method):
    path = adapter(f"""
import asyncio, sys, threading
sys.path.insert(0, {str(ADAPTERS)!r})
import measuring

class FakePeer:
    def __init__(self, url):
        self.barrier, self.event, self.senders = threading.Barrier(8), asyncio.Event(), 0
    async def all_eight(self):
        self.senders += 1
        if self.senders == 8:
            self.event.set()
        await asyncio.wait_for(self.event.wait(), 30)
    {method}

measuring.main(FakePeer)
""")
    assert run_adapter(PYTHON, path, "producers", 16, "redis://nowhere")["seconds"] > 0


def test_cost_counts_commands_inside_scripts_but_not_its_own(tcp_url):
    with redis.Redis.from_url(tcp_url) as client:
        client.ping()
        before = ServerCost.now(tcp_url)
        assert ServerCost.now(tcp_url).since(before)["commands"] == 0
        client.eval("redis.call('SET', KEYS[1], 1) redis.call('DEL', KEYS[1])", 1, "one")
        added = ServerCost.now(tcp_url).since(before)
    assert added["commands"] == 3
    assert added["cpu"] >= 0


@pytest.mark.long
def test_proxy_delays_each_way(tcp_url):
    with DelayProxy(tcp_url, 0.05) as proxy, redis.Redis.from_url(proxy.url) as client:
        client.ping()
        began = time.monotonic()
        client.set("large", b"x" * 1_000_000)
        assert time.monotonic() - began >= 0.1
        assert client.get("large") == b"x" * 1_000_000
