"""The benchmarks are started by path, so that their own modules are found beside them."""

import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.append(str(SCRIPTS))  # last, since `scripts/test.py` would hide Python's own `test`
