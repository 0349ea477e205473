"""The append-only file is cut inside the writes of a script: the script is kept completely or not at all."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from delayq.broker.requests import ScriptCall
from delayq.broker.transport.executor import Executor
from tests.lua.tables import TABLES
from tests.model.running import connected
from tests.support.redis_server import RedisServer
from tests.support.scripts import PARTS, Case, World, calls, observe, observe_replies, plant

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--aof-load-truncated", "yes")
SAMPLE = 2
"""Bytes at random for each script where not all of them are tried; the layouts take turns."""

CONFIGURED = Case("", World(), calls.configure(events=100, dedupe_window=1000, dedupe_max=10), None, World())
CASES: dict[str, list[Case]] = {**TABLES, "configure": [CONFIGURED]}

Layout = Callable[[Path, bytes], None]


class Stands(NamedTuple):
    """All that is stored."""

    world: World
    replies: dict[bytes, bytes]


class Written(NamedTuple):
    """What a script has written: the file before it and after it, and what stands before and after."""

    before: Stands
    after: Stands
    length: int
    file: bytes


def stands(executor: Executor) -> Stands:
    return Stands(observe(executor), observe_replies(executor))


def aof(folder: Path) -> Path:
    """Return the file that is being written: of several since Redis 7, before that the only one."""
    return next(folder.glob("appendonlydir/*.incr.aof"), folder / "appendonly.aof")


def several_files(folder: Path, file: bytes) -> None:
    """Lay the file out as the server did that wrote it."""
    aof(folder).write_bytes(file)


def single_file(folder: Path, file: bytes) -> None:
    """Lay it out as servers before Redis 7 do, which later ones take over at their start."""
    shutil.rmtree(folder / "appendonlydir", ignore_errors=True)
    (folder / "appendonly.aof").write_bytes(file)


def most_written(server: RedisServer, script: str) -> Written:
    """Run every case of a script's table, and return the one that writes most."""
    best: Written | None = None
    with connected(server.url) as executor:
        for case in CASES[script]:
            written = _written(server, executor, case)
            if best is None or len(written.file) - written.length > len(best.file) - best.length:
                best = written
    assert best
    assert best.before != best.after
    return best


def _written(server: RedisServer, executor: Executor, case: Case) -> Written:
    executor.client.flushall()
    executor.client.script_load(case.call.script.text)
    plant(executor, case.before)
    before, path = stands(executor), aof(server.folder)
    length = path.stat().st_size
    _try(executor, case.call)
    return Written(before, stands(executor), length, path.read_bytes())


def _try(executor: Executor, call: ScriptCall[Any]) -> None:
    executor.run([call])  # some cases are refused, and write nothing


def loaded(server: RedisServer, layout: Layout, file: bytes) -> Stands:
    """Return the contents that a server loads from a file."""
    server.kill()
    layout(server.folder, file)
    server.start()
    with connected(server.url) as executor:
        return stands(executor)


def cut_everywhere(server: RedisServer, script: str, layout: Layout, sample: int | None) -> int:
    written = most_written(server, script)
    inside = range(written.length, len(written.file))
    chosen = inside if sample is None else {inside[0], inside[-1], *random.sample(inside, sample)}
    for cut in [*chosen, len(written.file)]:
        should = written.after if cut == len(written.file) else written.before
        assert loaded(server, layout, written.file[:cut]) == should, f"{script} cut at byte {cut - written.length}"
    return len(chosen) + 1


@pytest.mark.parametrize(
    ("script", "layout"),
    [
        pytest.param(script, layout, marks=pytest.mark.long if number % 3 else ())
        for number, (script, layout) in enumerate(zip(CASES, cycle([several_files, single_file]), strict=False))
    ],
)
def test_script_is_kept_completely_or_not_at_all(start_redis, script, layout):
    assert cut_everywhere(start_redis(*DURABLE), script, layout, SAMPLE) >= 3


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("layout", [several_files, single_file])
@pytest.mark.parametrize("script", CASES)
def test_script_is_kept_completely_or_not_at_all_at_every_byte(start_redis, script, layout):
    print(f"{script}: {cut_everywhere(start_redis(*DURABLE), script, layout, None)} places")


@pytest.mark.parametrize("layout", [several_files, single_file])
def test_separate_commands_are_not_atomic(start_redis, layout):
    """Proof that the file itself is not atomic: separate commands do not survive the same cut."""
    server = start_redis(*DURABLE)
    with connected(server.url) as executor:
        plant(executor, World(pending={"a": 0}, retries={"a": 1}, messages={"a": "A"}))
        whole = stands(executor)
    torn = loaded(server, layout, aof(server.folder).read_bytes()[:-1])
    assert torn != whole
    assert torn.world != World()


def test_every_part_of_a_queue_is_compared():
    assert {*World.__dataclass_fields__, "archives"} == set(PARTS)
