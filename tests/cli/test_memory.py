"""Memory: whatever reads the payloads of many messages does so a few at a time, however large each of them is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from delayq import DelayQueue, NewMessage
from delayq.streams import StreamQueue
from tests.support.processes import run

NUMBER = 100
SIZE = 900_000
LIMIT = 80
"""MiB by which a process may grow: less than the payloads of one state have, to say nothing of their copies."""

START = """
import asyncio, json, os, re, sys
import httpx, pyarrow.parquet
from delayq import DelayQueue
from delayq.bulk import export_messages, import_messages, load
from delayq.cli import main
from delayq.spark.datasource.snapshot_reader import SnapshotReader
from delayq.spark.datasource.source_options import snapshot_options
from delayq.streams import StreamQueue
from delayq.web import web_app
url, NUMBER = os.environ["DELAYQ_URL"], int(os.environ["NUMBER"])
queue = DelayQueue("q", url=url)
queue.callback(print)

def delayq(*arguments):
    try:
        main(arguments)
    except SystemExit as ended:
        assert ended.code == 0, ended.code

def pages(read):
    page = read(limit=1000)
    number = len(page.messages)
    while page.cursor:
        page = read(limit=1000, cursor=page.cursor)
        number += len(page.messages)
    return number

def visit(*paths):
    async def ask():
        transport = httpx.ASGITransport(web_app(url=url), client=("127.0.0.1", 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.gather(*(client.get(path) for path in paths))
    assert [reply.status_code for reply in asyncio.run(ask())] == [200] * len(paths)

def memory(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

took = {}
for way, code in json.loads(sys.argv[1]).items():
    before = memory("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    exec(code)
    took[way] = memory("VmHWM") - before
print(json.dumps(took), file=sys.stderr)
"""
WAYS = {
    **{
        f"list {state}": f"delayq('list', 'q', '--state', '{state}', '--all')" for state in ("pending", "ready", "dead")
    },
    "dead list": "delayq('dead', 'list', 'q', '--all', '--jsonl')",
    "dead groups": "delayq('dead', 'groups', 'q')",
    "show": "delayq('show', 'q', 'later-0')",
    "search for what all have": "delayq('search', 'q', 'xxx', '--limit', '1000', '--json')",
    "search for what none has": "delayq('search', 'q', 'none')",
    "queue.search": "assert len(queue.search('xxx', state='pending', limit=1000).matches) > 5",
    "queue.list": "assert pages(lambda **how: queue.list('dead', **how)) == NUMBER",
    "check": "assert queue.check().checked == 3 * NUMBER",
    "export": "delayq('export', 'q')",
    "export to Parquet": "delayq('export', 'q', 'out.parquet')",
    "import": "delayq('import', 'a', 'q.jsonl')",
    "import of Parquet": "delayq('import', 'b', 'q.parquet')",
    "import of Parquet with a payload once": "delayq('import', 'c', 'once.parquet')",
    "load of Parquet with a payload once": "delayq('load', 'once.parquet', 'd')",
    "search in the dashboard": "visit(*['/search?queue=q&text=none'] * 3)",
    "matches in the dashboard": "visit(*['/search?queue=q&text=xxx'] * 3)",
    "pages of the dashboard": """visit('/dead?queue=q', '/dead?queue=q&grouped=yes', '/messages?queue=q',
        '/messages?queue=q&state=ready', '/message?queue=q&id=later-0')""",
    "dead letter of a stream": "assert pages(StreamQueue('s', url=url).dead.list) == NUMBER",
    "snapshot for Spark": """
reader = SnapshotReader(snapshot_options({"url": url, "queue": "q", "includePayload": "true"}))
assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 3 * NUMBER""",
}


@pytest.fixture
def large(redis_url, tmp_path):
    """A queue with many large messages that are pending, ready and dead, a stream with dead ones, and their files."""
    big = "x" * SIZE
    with DelayQueue("q", url=redis_url, codec="text") as queue, StreamQueue("s", url=redis_url, codec="text") as stream:

        def send(name, **options):
            for n in range(NUMBER):
                queue.send_many([NewMessage(big, id=f"{name}-{n}", **options)])

        send("dead")
        for message in queue.lease("1h", n=NUMBER):
            message.reject("too large")
        send("ready")
        for message in queue.lease("1h", n=NUMBER):
            message.release()
        send("later", delay="30d")
        assert (queue.counts().pending, queue.counts().ready, queue.counts().dead) == (NUMBER,) * 3
        for _ in range(NUMBER):
            stream.send_many([big])
        for message in stream.lease(n=NUMBER):
            message.reject("too large")
    for name in ("q.jsonl", "q.parquet"):
        run([sys.executable, "-m", "delayq", "--url", redis_url, "export", "q", name], cwd=tmp_path, check=True)
    rows = 4 * NUMBER
    payloads = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([big.encode()], pa.binary()))
    table = pa.table({"id": [f"once-{n}" for n in range(rows)], "payload": payloads.cast(pa.large_binary())})
    parquet.write_table(table, tmp_path / "once.parquet")
    return tmp_path


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory as Linux tells it")
def test_payloads_are_read_a_few_at_a_time(large, redis_url):
    env = {"DELAYQ_URL": redis_url, "NUMBER": f"{NUMBER}"}
    command = [sys.executable, "-c", START, json.dumps(WAYS)]
    ended = run(command, cwd=large, env=env, check=True, capture_output=True, text=True)
    took = json.loads(ended.stderr.splitlines()[-1])
    assert took.keys() == WAYS.keys()
    assert {way: size for way, size in took.items() if size > LIMIT} == {}, took
