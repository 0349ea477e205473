"""The tests of `tests/lua`, to be called as functions: a mutant needs hundreds of them, at a millisecond each."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest
import redis

import tests.lua
from delayq.broker.transport.executor import Executor, open_executor
from delayq.options import read_settings
from tests.lua.tables import SCRIPTS
from tests.support.redis_server import RedisServer
from tests.support.tables import rows_of

_FOLDER = Path(next(iter(tests.lua.__path__)))
_STATIC = {"test_contract"}
"""Reads the scripts, and does not run them."""
PATIENCE = 3.0
"""Seconds to wait for a reply: no script of these tests runs for so long."""


_WORD = re.compile(r"\w+")
_CALLED = re.compile(r"""(?:\.|\[")(\w+)(?:\(|"\])|\b(\w+)_call\(""")
"""A method of `Calls`, or the function that makes the call of a capability."""
_source = cache(inspect.getsource)


@dataclass(frozen=True, eq=False)
class Check:
    """One test with the values of its parameters."""

    module: ModuleType
    function: Callable[..., None]
    values: dict[str, Any]

    @property
    def name(self) -> str:
        """Module and name of the test."""
        return f"{self.module.__name__.removeprefix('tests.lua.')}.{self.function.__name__}"

    @cached_property
    def scripts(self) -> set[str]:
        """The scripts that it may run: that of its table row, or those called by it and its functions."""
        if "case" in self.values:
            return {self.values["case"].call.script.name}
        if "script" in self.values:
            return {self.values["script"]}
        named = [self.function, *(one for one in self.values.values() if inspect.isfunction(one))]
        for function in named:
            words = set(_WORD.findall(_source(function)))
            known = (inspect.unwrap(one) for name, one in vars(self.module).items() if name in words)
            named += [one for one in known if inspect.isfunction(one) and one not in named]
        called = (found.group(1) or found.group(2) for one in named for found in _CALLED.finditer(_source(one)))
        return {name for name in called if name in SCRIPTS}

    @property
    def is_of_a_table(self) -> bool:
        """Whether it tests a table row, whose script is known."""
        return self.module.__name__.endswith("test_cases")

    @property
    def is_heavy(self) -> bool:
        """Whether it takes as long as dozens of others."""
        return self.module.__name__.endswith(("test_full", "test_thousand"))


def all_checks() -> list[Check]:
    """Return every test of every module, once for each set of its parameters."""
    names = sorted(path.stem for path in _FOLDER.glob("test_*.py") if path.stem not in _STATIC)
    return [check for name in names for check in _checks_of(import_module(f"tests.lua.{name}"))]


def _checks_of(module: ModuleType) -> Iterator[Check]:
    for name, function in vars(module).items():
        if not name.startswith("test_"):
            continue
        marks = getattr(function, "pytestmark", [])
        tables = [
            [row.values for row in rows_of(*mark.args)]
            for mark in marks
            if mark.name in ("parametrize", "table") and not mark.kwargs.get("indirect")
        ]
        for row in itertools.product(*tables):
            yield Check(module, function, {name: value for values in row for name, value in values.items()})


class Stage:
    """Two servers on which checks run one after another; the second is for tests of a full server."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def __enter__(self) -> Self:
        # After this threshold Redis replies BUSY: this distinguishes an endless script from a slow machine.
        self._servers = [self._open.enter_context(RedisServer("--busy-reply-threshold", "1000")) for _ in range(2)]
        self.server, self._spare = self._servers
        self.clients = [self._open.enter_context(server.client()) for server in self._servers]
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    @contextmanager
    def shared_executor(self) -> Iterator[None]:
        """Open the executor that checks share; one per mutant, because it caches scripts."""
        with short_executor(self.server) as self.executor:
            yield

    def call(self, check: Check) -> None:
        """Call a check on empty servers; raises what it raises."""
        self.clients[0].flushall()
        with ExitStack() as stack:
            check.function(**self._arguments(check.function, check, stack))

    def _arguments(self, function: Callable[..., Any], check: Check, stack: ExitStack) -> dict[str, Any]:
        return {name: self._argument(name, check, stack) for name in inspect.signature(function).parameters}

    def _argument(self, name: str, check: Check, stack: ExitStack) -> Any:
        if name in check.values:
            return check.values[name]
        fixture = vars(check.module).get(name)
        if fixture is None:
            return getattr(self, f"_{name}")(check, stack)
        function = inspect.unwrap(fixture)
        arguments = self._arguments(function, check, stack)
        if inspect.isgeneratorfunction(function):
            return stack.enter_context(contextmanager(function)(**arguments))
        return function(**arguments)

    # Replacements for the fixtures of other modules.

    def _executor(self, check: Check, stack: ExitStack) -> Executor:
        # Connecting costs more than the rest of a check: only a check that changes its executor gets its own.
        is_changed = "monkeypatch" in inspect.signature(check.function).parameters
        return stack.enter_context(short_executor(self.server)) if is_changed else self.executor

    _real_executor = _executor

    def _redis_client(self, *_: Any) -> redis.Redis:
        return self.clients[0]

    def _redis_url(self, *_: Any) -> str:
        return self.server.url

    def _start_redis(self, *_: Any) -> Callable[[], RedisServer]:
        self.clients[1].config_set("maxmemory", "0")
        self.clients[1].flushall()
        return lambda: self._spare

    def _monkeypatch(self, _: Check, stack: ExitStack) -> pytest.MonkeyPatch:
        return stack.enter_context(pytest.MonkeyPatch.context())

    def is_stuck(self) -> bool:
        """Restart servers that have ended or run an endless script; return whether there were any."""
        stuck = [server for server, client in zip(self._servers, self.clients, strict=True) if not _answers(client)]
        for server in stuck:
            if server.is_running:
                server.kill()
            server.start()
        return bool(stuck)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@contextmanager
def short_executor(server: RedisServer) -> Iterator[Executor]:
    """Open an executor with short timeouts."""
    executor = open_executor({"url": server.url}, read_settings({"socket_timeout": PATIENCE, "deadline": PATIENCE}))
    try:
        yield executor
    finally:
        executor.close()
