"""mypy and pyright still find the errors of users: see tests/typing, where every ignore must be needed."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import run

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "tests" / "typing"


@pytest.mark.long
@pytest.mark.timeout(180)
def test_mypy_accepts_every_file_in_typing():
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(PROOFS)]
    checked = run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"NO_COLOR": "1"})
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.timeout(180)
def test_pyright_accepts_every_file_in_typing(tmp_path):
    config = {"include": [str(PROOFS)], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    checked = run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_typing_files_expect_errors():
    ignores = [
        name for path in PROOFS.glob("*.py") for name in re.findall(r"# type: ignore\[(.+?)\]", path.read_text())
    ]
    assert len(ignores) > 30
    assert {"arg-type", "call-overload", "list-item", "union-attr"} <= set(ignores)
