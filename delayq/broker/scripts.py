"""The Lua scripts, each read from `lua/<name>.lua` together with the fragments that its header names.

Those of another engine lie in a folder `lua` of its own room: `workqueue/claim` is `workqueue/lua/claim.lua`.

The header of a file is its contract: `KEYS` names the parts of a queue's keys in order (see `Keys`), `ARGV` the
arguments, `Uses` the fragments of `lua/lib`. A script whose arguments begin with a slot and a sequence executes once.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MOST_IDS = 1000
"""Ids one call may carry: a few milliseconds of the server's time, well within what Lua can unpack."""
MOST_MOVED = 500
"""Ids of a call that moves messages with all they have, or looks for all they have: twice the work for each."""


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """One script: what the server runs and what its header promises."""

    name: str
    text: bytes
    sha: bytes
    parts: tuple[str, ...]
    executes_once: bool

    def commands_at(self, line: int) -> str:
        """Return the commands on a line of the text, as the server's errors point to it: "'llen' or 'rpush'"."""
        found = re.findall(r"redis\.p?call\('(\w+)'", self.text.decode().splitlines()[line - 1])
        return " or ".join(f"'{name.lower()}'" for name in dict.fromkeys(found))


@cache
def names(room: str = "") -> tuple[str, ...]:
    """Return the names of all scripts of a delay queue, or of another engine by its room."""
    found = sorted(path.name.removesuffix(".lua") for path in _folder(room).iterdir() if path.name.endswith(".lua"))
    return tuple(f"{room}/{name}" if room else name for name in found)


@cache
def script(name: str) -> Script:
    """Return the script of a name, its fragments put before it."""
    source = _read(f"{name}.lua")
    header = _header(source)
    room = name.rpartition("/")[0]
    fragments = [_fragment(room, fragment) for fragment in re.findall(r"\w+", header.get("Uses", ""))]
    text = "\n".join([*fragments, source]).encode()
    parts = tuple(entry.split()[0] for entry in header["KEYS"].split(", "))
    sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
    return Script(name, text, sha, parts, header["ARGV"].startswith("slot, sequence"))


def _folder(room: str = "") -> Traversable:
    from importlib.resources import files  # a tenth of `import delayq`, which reads no script

    return files("delayq").joinpath(room, "lua")


def _fragment(room: str, name: str) -> str:
    """Return a fragment: one of the room's own, else one of the delay queue's."""
    own = _folder(room).joinpath("lib", f"{name}.lua")
    return own.read_text() if room and own.is_file() else _read(f"lib/{name}.lua")


def _read(path: str) -> str:
    room, _, file = path.rpartition("/")
    if room == "lib":
        room, file = "", path
    return _folder(room).joinpath(file).read_text()


def _header(source: str) -> dict[str, str]:
    """Return the labelled paragraphs of the comment that a script begins with."""
    lines: list[str] = []
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    labelled = re.split(r"(KEYS|ARGV|Returns|Re-run|Uses): ", " ".join(lines))[1:]
    return {label: body.strip() for label, body in zip(labelled[::2], labelled[1::2], strict=True)}
