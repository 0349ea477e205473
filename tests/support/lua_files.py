"""Puts another text in the place of a file of `delayq/lua`, or of another engine's `lua`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from delayq.broker import scripts


def _place(file: str) -> tuple[str, str]:
    """Return the engine and the path that a script reads a file by: `streams/lib/take.lua` is that of `streams`."""
    engine, _, path = file.partition("/")
    return (engine, path) if engine in ("streams", "workqueue") else ("", file)


def source_of(file: str) -> str:
    """Return the text of a file, named from the `lua` of the broker or, with the engine before it, of an engine."""
    engine, path = _place(file)
    return scripts.read_all(engine)[path]


@contextmanager
def in_place(file: str, text: str) -> Iterator[None]:
    """Have every script that is made of a file run another text, wherever that script is already held.

    An executor keeps what the calls of a script begin with: one that is opened meanwhile runs the text.
    """
    engine, path = _place(file)
    texts: Any = scripts.read_all(engine)
    source = texts[path]
    original = source.encode()
    rooms = ("", "streams", "workqueue")
    known = (scripts.script(name) for room in rooms for name in scripts.names(room))
    changed = [one for one in known if original in one.text]
    kept = [(one.text, one.sha) for one in changed]
    texts[path] = text
    try:
        for one in changed:
            made = scripts.script.__wrapped__(one.name)
            _put(one, made.text, made.sha)
        yield
    finally:
        texts[path] = source
        for one, (former, sha) in zip(changed, kept, strict=True):
            _put(one, former, sha)


def _put(script: scripts.Script, text: bytes, sha: bytes) -> None:
    object.__setattr__(script, "text", text)
    object.__setattr__(script, "sha", sha)
