"""Puts another text in the place of a file of `delayq/lua`, or of another engine's `lua`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delayq import script as scripts


@contextmanager
def in_place(file: str, text: str) -> Iterator[None]:
    """Have every script that is made of a file run another text, wherever that script is already held.

    An executor keeps what the calls of a script begin with: one that is opened meanwhile runs the text.
    """
    read = scripts._read
    original = read(file).encode()
    rooms = ("", "streams", "workqueue")
    known = (scripts.script(name) for room in rooms for name in scripts.names(room))
    changed = [one for one in known if original in one.text]
    kept = [(one.text, one.sha) for one in changed]
    scripts._read = lambda path: text if path == file else read(path)
    try:
        for one in changed:
            made = scripts.script.__wrapped__(one.name)
            _put(one, made.text, made.sha)
        yield
    finally:
        scripts._read = read
        for one, (former, sha) in zip(changed, kept, strict=True):
            _put(one, former, sha)


def _put(script: scripts.Script, text: bytes, sha: bytes) -> None:
    object.__setattr__(script, "text", text)
    object.__setattr__(script, "sha", sha)
