"""From row to row each effect happens once, whatever is killed; what was rolled back is never sent."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pytest
from sqlalchemy import create_engine, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from delayq import DelayqError, outbox
from delayq.outbox.tables import outbox as table
from tests.outbox.programs import connect, effects, jobs, made, tables
from tests.support.postgres import Postgres, find_program
from tests.support.processes import Process

PROGRAM = """
import sys
from tests.outbox import programs
programs.persist(getattr(programs, sys.argv[1]), *sys.argv[2:])
"""
EVERY = """
import os, signal, sys
from itertools import count
from sqlalchemy import event, insert, select
from delayq import outbox
from delayq.broker.transport.connections import Connections
from tests.outbox.programs import connect, effects, jobs, made

url, redis_url = sys.argv[1:]
exchange = Connections.exchange

def dying(at):
    left = [at]
    def step(*args, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    engine = connect(url)
    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(engine, name, step)
    def exchanging(self, *args):
        step()
        replies = exchange(self, *args)
        step()
        return replies
    Connections.exchange = exchanging
    return engine

def write(engine, n):
    with engine.begin() as connection:
        connection.execute(insert(made), {"n": n})
        outbox.send(connection, jobs(redis_url), n, id=f"job-{n}")

def relay(engine, n):
    outbox.relay(engine, jobs(redis_url)).run(burst=True)

def consume(engine, n):
    with jobs(redis_url).lease(block=0.01) as message:
        if message is not None:
            with engine.begin() as connection:
                if outbox.once(connection, message):
                    connection.execute(insert(effects), {"n": message.payload, "id": message.id})

def rest():
    engine = connect(url)
    relay(engine, 0)
    queue = jobs(redis_url)
    while queue.counts().living:
        consume(engine, 0)
    queue.close()
    with engine.connect() as connection:
        committed = sorted(connection.scalars(select(made.c.n)))
        assert sorted(connection.scalars(select(effects.c.n))) == committed, (name, at)

n = 0
for name, work in (("write", write), ("relay", relay), ("consume", consume)):
    for at in count(1):
        n += 1
        if work is not write:
            write(connect(url), n)
        if work is consume:
            relay(connect(url), n)
        child = os.fork()
        if child == 0:
            work(dying(at), n)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            break
        rest()
    rest()
    print(name, at, flush=True)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request, tmp_path):
    """A database of this test alone, and its URL: SQLite has no server to kill."""
    if request.param == "sqlite":
        server, url = None, f"sqlite:///{tmp_path}/app.db"
    elif find_program("initdb") is None:
        pytest.skip("no PostgreSQL: scripts/ensure-postgres")
    else:
        server = Postgres()
        url = server.url().render_as_string()
    engine = connect(url)
    outbox.create(engine)
    tables.create_all(engine)
    yield server, url
    if server is not None:
        server.stop()


def start(script, *arguments, stdout=subprocess.DEVNULL):
    command = [sys.executable, "-c", script, *arguments]
    return Process(command, stdout=stdout, stderr=subprocess.STDOUT, text=True)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_kill_at_every_statement(server, redis_url):
    _, url = server
    with start(EVERY, url, redis_url, stdout=subprocess.PIPE) as process:
        said, _ = process.communicate(timeout=380)
    assert process.returncode == 0, said
    points = dict(line.split() for line in said.splitlines() if line.startswith(("write", "relay", "consume")))
    assert all(int(number) > 5 for number in points.values()), points
    assert len(points) == 3


class Pipeline:
    """The programs of a pipeline as processes, which are killed at random and begun anew."""

    def __init__(self, url, redis_url, count, draw):
        self.roles = {"write": [str(count)], "relay": [], "relay 2": [], "consume": []}
        self._urls, self._draw = (url, redis_url), draw
        self.running = {role: self._begin(role) for role in self.roles}

    def _begin(self, role):
        more = [str(self._draw.randrange(1 << 30))] if role == "write" else []
        return start(PROGRAM, role.partition(" ")[0], *self._urls, *self.roles[role], *more)

    def kill(self, role):
        if self.running[role].poll() is None:
            self.running[role].kill()
            self.running[role].wait()

    def begin_anew(self):
        for role, process in self.running.items():
            if process.poll() is not None and not self.has_written(role):
                self.running[role] = self._begin(role)

    def has_written(self, role="write"):
        return role == "write" and self.running[role].poll() == 0

    def end(self):
        for process in self.running.values():
            process.end()


@pytest.mark.long
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(20_000, marks=pytest.mark.timeout(900)),
        pytest.param(200_000, marks=[pytest.mark.torture, pytest.mark.timeout(3500)]),
    ],
)
def test_kills_at_random(server, start_redis, count, request):
    database, url = server
    redis = start_redis("--appendonly", "yes")
    seed = random.randrange(1 << 30)
    draw, kills = random.Random(seed), Counter()
    pipeline = Pipeline(url, redis.url, count, draw)
    request.addfinalizer(pipeline.end)
    servers = {"redis": redis, "database": database} if database else {"redis": redis}
    engine = create_engine(url, poolclass=NullPool)

    def rows(of):
        with suppress(SQLAlchemyError), engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(of))
        return -1

    end = time.monotonic() + (800 if count < 100_000 else 3400)
    while not (pipeline.has_written() and rows(made) == count):
        assert time.monotonic() < end, f"seed {seed}: {rows(made)} of {count} rows"
        time.sleep(draw.uniform(1, 4))
        victim = draw.choice([*pipeline.roles, *servers])
        kills[victim] += 1
        if victim in servers:
            servers[victim].kill()
            servers[victim].start()
        else:
            pipeline.kill(victim)
        pipeline.begin_anew()
    with jobs(redis.url) as queue:
        while rows(table) or rows(effects) < count or living(queue):
            assert time.monotonic() < end, f"seed {seed}: {rows(table)} rows left, {rows(effects)} effects"
            time.sleep(0.05)
    with engine.connect() as connection:
        found = sorted(connection.scalars(select(effects.c.n)))
    assert found == list(range(1, count + 1)), f"seed {seed}, {kills}"
    assert kills.total() > 3, kills


def living(queue):
    with suppress(DelayqError):
        return queue.counts().living
    return 1
