"""Fixtures for runs of `delayq torture`: a temporary folder, and no coverage."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def folder():
    # Not pytest's tmp_path: the path of a unix socket is limited to about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="dq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def unmeasured(monkeypatch):
    """Measure no coverage: it would double the time of a run with dozens of processes."""
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        monkeypatch.delenv(name)
