"""Creates an environment for each peer, and runs its adapter there."""

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
"""Seconds that an adapter may take."""


class FailedError(Exception):
    """A peer could not be installed or measured; the message is the reason."""


def python_of(peer: Peer) -> Path:
    """Return the Python of a peer; create its environment if the requirements have changed."""
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


def run_adapter(python: Path, adapter: Path, work: str, n: int, url: str) -> dict[str, Any]:
    """Run an adapter and return its reply; end all processes that it started."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        # A new session: some peers start processes that outlive the adapter and keep its output open.
        process = subprocess.Popen([python, adapter, work, str(n), url], stdout=out, stderr=err, start_new_session=True)
        try:
            code = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise FailedError(f"not finished in {TIMEOUT:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        if code:
            raise FailedError(last_line(err.read())[:200] or f"exit code {code}")
        output = last_line(out.read())
    try:
        reply = json.loads(output)
    except ValueError:
        reply = None
    if not isinstance(reply, dict):
        raise FailedError(f"not a reply: {output[:80]!r}")
    return reply


def last_line(text: str) -> str:
    """Return the last line that is not blank."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
