"""The benchmarks are started by path, so that their own modules are found beside them."""

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.append(str(SCRIPTS))  # last, since `scripts/test.py` would hide Python's own `test`


@pytest.fixture
def adapter(tmp_path):
    """`adapter(code)` writes a program with this code and returns its path."""

    def write(code):
        path = tmp_path / "adapter.py"
        path.write_text(code)
        return path

    return write
