"""What a transaction of Django has committed is sent once, and what it has rolled back never, whatever is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import Process

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path, project):
    """Where a database of this test alone is, for `tests.support.django_app.project`."""
    if request.param == "sqlite":
        yield str(tmp_path / "app.db")
        return
    from tests.support.postgres import Postgres, find_program

    if find_program("initdb") is None:
        pytest.skip("no PostgreSQL: scripts/ensure-postgres")
    pytest.importorskip("psycopg")
    server = Postgres()
    yield str(server.folder)
    server.stop()


def start(place, redis_url, *words):
    known = {"DJANGO_SETTINGS_MODULE": "tests.support.django_app.project", "DELAYQ_URL": redis_url}
    return Process(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, **known, "DJANGO_DATABASE": place, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
@pytest.mark.timeout(400)
def test_kill_at_every_statement(place, redis_url):
    with start(place, redis_url, "-m", "django", "migrate", "delayq") as process:
        process.communicate(timeout=60)
    with start(place, redis_url, "-m", "tests.django.killed_program") as process:
        said, errors = process.communicate(timeout=380)
    assert process.returncode == 0, errors[-3000:]
    points = [line.split() for line in said.splitlines()]
    assert [line[:2] for line in points] == [*(["write", str(how)] for how in range(4)), ["relay", "0"]]
    assert all(int(steps) >= 3 for *_, steps in points), points
