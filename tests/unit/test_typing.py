"""What mypy catches for users, it still catches: see tests/typing, whose ignores must all be needed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "tests" / "typing"


@pytest.mark.timeout(180)
def test_mypy_agrees_with_every_proof():
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(PROOFS)]
    checked = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"NO_COLOR": "1"}
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_there_are_proofs_that_something_is_caught():
    ignores = [
        name for path in PROOFS.glob("*.py") for name in re.findall(r"# type: ignore\[(.+?)\]", path.read_text())
    ]
    assert len(ignores) > 30
    assert {"arg-type", "call-overload", "list-item", "union-attr"} <= set(ignores)
