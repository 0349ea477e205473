"""The version before this one, from the history of the repository, for processes that work beside those of this one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from tests.support.processes import run

COMMIT = "1d67e272"
"""The last commit whose data and workers must still work beside this one.

Move it on to the commit of each release. Before the first one, move it on when stored data may no longer be read.
"""
ROOT = Path(__file__).parents[2]


@cache
def older_version() -> Path:
    """Return a folder for PYTHONPATH with the older version, installed from its wheel; skip where there is no history.

    It is made once for each environment and commit.
    """
    folder = Path(sys.prefix) / "older-versions" / COMMIT
    if folder.exists():
        return folder
    known = ["git", "-C", ROOT, "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    if not shutil.which("git") or run(known, capture_output=True).returncode:
        pytest.skip(f"needs commit {COMMIT}, which a source archive or a shallow clone has not")
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if not uv:
        pytest.skip("needs uv, which builds the wheel of the older version")
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        made = Path(name)
        run(["git", "-C", ROOT, "archive", "-o", made / "source.tar", COMMIT], check=True, capture_output=True)
        shutil.unpack_archive(made / "source.tar", made / "source", filter="data")
        build = [uv, "build", "--quiet", "--wheel", "--out-dir", made, made / "source"]
        run(build, check=True, capture_output=True)
        (wheel,) = made.glob("*.whl")
        install = [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target"]
        run([*install, made / "installed", wheel], check=True, capture_output=True)
        with suppress(OSError):  # another process was faster
            (made / "installed").rename(folder)
    assert (folder / "delayq").is_dir()
    return folder
