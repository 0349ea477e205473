"""What the tests of security share: both faces, and the command line run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, settings

from delayq.cli import main
from tests.support.faces import Asyncio, Blocking


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ended]


@pytest.fixture(params=[Blocking, Asyncio], ids=["blocking", "asyncio"])
def face(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One face, then the other."""
    made = request.param()
    yield made
    made.close()


@pytest.fixture
def cli(tmp_path, monkeypatch) -> Cli:
    """`cli(url, "stats", "reminders")` runs a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(url: str, *arguments: str, stdin: bytes | None = None) -> Ended:
        env = {"DELAYQ_URL": url, "COLUMNS": None}
        result = CliRunner().invoke(main, arguments, input=stdin, env=env, prog_name="delayq")
        assert isinstance(result.exception, SystemExit | None), result.exc_info
        return Ended(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture(params=["a tenth", pytest.param("all", marks=pytest.mark.torture)])
def cases(request: pytest.FixtureRequest) -> Callable[[int], settings]:
    """`cases(3000)` has a function tried with so many inputs, a tenth of them in the quick tests; nothing is timed."""
    share = 1 if request.param == "all" else 10
    return lambda number: settings(
        max_examples=number // share,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
