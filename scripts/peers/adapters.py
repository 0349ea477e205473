"""Environments with a peer each, and the programs in them that are asked for a measurement."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from peers.roster import Peer

ADAPTERS = Path(__file__).resolve().parent
TIMEOUT = 90.0
"""Seconds that an adapter may take for one work."""


class FailedError(Exception):
    """A peer could not be set up or measured; says why in a line."""


def python_of(peer: Peer) -> Path:
    """Return the Python that has a peer, its environment made anew if it is not the one asked for."""
    if not peer.requirements:
        return Path(sys.executable)
    folder = Path(sys.prefix) / "peers" / peer.name
    python, ready, wanted = folder / "bin" / "python", folder / ".ready", "\n".join(peer.requirements)
    if not ready.is_file() or ready.read_text() != wanted:
        uv = Path(sys.executable).parent / "uv"
        for words in (
            ["venv", "--clear", "--python", sys.executable, folder],
            ["pip", "install", "--python", python, *peer.requirements],
        ):
            try:
                done = subprocess.run([uv, "--quiet", *words], capture_output=True, text=True, check=False)
            except OSError as error:
                raise FailedError(f"cannot run uv: {error}") from error
            if done.returncode:
                raise FailedError(f"not installed: {last_line(done.stderr)[:200]}")
        ready.write_text(wanted)
    return python


def ask(python: Path, adapter: Path, work: str, n: int, url: str) -> dict[str, Any]:
    """Have an adapter do a work and return its answer; whatever it leaves running is ended."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        # A group of its own: some peers start processes which outlive the adapter and hold its output open.
        process = subprocess.Popen([python, adapter, work, str(n), url], stdout=out, stderr=err, start_new_session=True)
        try:
            code = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise FailedError(f"not done in {TIMEOUT:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        if code:
            raise FailedError(last_line(err.read())[:200] or f"exit code {code}")
        said = last_line(out.read())
    try:
        answer = json.loads(said)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise FailedError(f"not an answer: {said[:80]!r}")
    return answer


def last_line(text: str) -> str:
    """Return the last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
