"""The measured peers: requirements, message counts, and remarks on their figures."""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

RATES = ("send", "bulk", "consume")
"""Kinds of work with a rate, in the order of `Peer.counts`."""
DAY = ("flow", "slow", "idle", "near", "far")
"""Kinds of work of the ordinary day: a steady flow, slow handlers, an idle worker, producers over a network."""
REDIS = ("redis==8.1.0", "hiredis==3.5.0")
OLDER_REDIS = ("redis==7.4.1", "hiredis==3.5.0")
UVLOOP = "uvloop==0.23.0"


class Peer(NamedTuple):
    """A measured queue: packages to install, messages for each rate, and a remark."""

    name: str
    requirements: tuple[str, ...]
    counts: tuple[int, int, int]
    delivery: str
    remark: str
    delays: bool = True
    concurrent: bool = True

    @property
    def once(self) -> tuple[str, ...]:
        """The kinds of work that are measured in the first round only."""
        left_out = (() if self.delays else ("late", "schedule", "flow")) + (() if self.concurrent else ("slow",))
        return tuple(work for work in ("late", "schedule", *DAY) if work not in left_out)

    @property
    def version(self) -> str:
        """The version that is measured."""
        return self.requirements[0].split("==")[1] if self.requirements else version("delayq")


PEERS = (
    Peer("delayq", (), (10_000, 200_000, 100_000), "at least once", "10 threads; bulk: `send_many`"),
    Peer(
        "celery",
        ("celery[redis]==5.7.0", *REDIS),
        (3_000, 3_000, 3_000),
        "at most once",
        "10 threads, prefetch multiplier 64; acknowledges before it runs a task, unless told to do so late; bulk: one "
        "by one over one producer; delayed tasks wait in the worker's memory",
    ),
    Peer(
        "rq",
        ("rq==3.0.0", *REDIS),
        (5_000, 20_000, 1_000),
        "at most once",
        "SimpleWorker: one job at a time (its usual worker forks for each job, which is slower); a job whose worker "
        "died fails; bulk: `enqueue_many`; due times are whole seconds",
        concurrent=False,
    ),
    Peer(
        "arq",
        ("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0", UVLOOP),
        (5_000, 5_000, 500),
        "at least once",
        "asyncio, `max_jobs=10`; takes 100 jobs each 0.5 s (`poll_delay` as it is by default); no bulk: one by one",
    ),
    Peer(
        "dramatiq",
        ("dramatiq==2.2.1", *REDIS),
        (6_000, 6_000, 4_000),
        "at least once",
        "10 threads; bulk: `group`, which sends one by one; delayed messages wait in the worker's memory",
    ),
    Peer(
        "huey",
        ("huey==3.5.4", *REDIS),
        (15_000, 15_000, 8_000),
        "at most once",
        "10 threads; no bulk: one by one; the scheduler looks each second; scheduled tasks as sent, before a worker "
        "puts them aside",
    ),
    Peer(
        "docket",
        ("pydocket==0.27.0", *REDIS, UVLOOP),
        (2_000, 15_000, 300),
        "at least once",
        "asyncio, `concurrency=10`, `execution_ttl=0`, checks each 100 ms whether one of ten places is free; bulk: "
        "`add_many`",
    ),
    Peer(
        "bullmq",
        ("bullmq==3.4.4", *OLDER_REDIS, UVLOOP),
        (4_000, 20_000, 3_000),
        "at least once",
        "BullMQ for Python, asyncio, `concurrency=10`; bulk: `addBulk` of 1,000; on redis-py 7, as the socket timeout "
        "of 5 s that 8 brings cuts off its wait for messages",
    ),
    Peer(
        "taskiq",
        ("taskiq-redis==1.2.4", "taskiq==0.13.0", *REDIS, UVLOOP),
        (3_000, 3_000, 3_000),
        "at least once",
        "asyncio, `max_async_tasks=10`, RedisStreamBroker; no bulk: one by one; delays need a scheduler process",
        delays=False,
    ),
    Peer(
        "streaq",
        ("streaq==7.2.0", "coredis==6.9.0", UVLOOP),
        (3_000, 20_000, 2_000),
        "at least once",
        "asyncio, `concurrency=10`; bulk: `enqueue_many` of 1,000",
    ),
    Peer(
        "saq",
        ("saq==0.26.4", "typing_extensions==4.16.0", *OLDER_REDIS, UVLOOP),
        (4_000, 4_000, 2_000),
        "at most once",
        "asyncio, `concurrency=10`; a job whose worker died is aborted, unless `retries` is raised; no bulk: one by "
        "one; looks for delayed jobs each second",
    ),
)
