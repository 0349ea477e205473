"""What runs of `delayq torture` need: a folder of their own, and no coverage."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def folder():
    # Not pytest's: a unix socket's path may have about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="dq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def unmeasured(monkeypatch):
    """Leave coverage, which would double the time of a run with dozens of processes, to the smaller runs."""
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        monkeypatch.delenv(name)
