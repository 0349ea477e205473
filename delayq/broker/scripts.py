"""Loads the Lua scripts: each by its name, whatever folder of `lua` it lies in, with the fragments that it uses.

A fragment lies in a folder `lib`. Other engines have a `lua` of their own: `workqueue/claim` is that of `workqueue`.

The header of a file is its contract: `KEYS` names the parts of a queue's keys in order (see `Keys`), `ARGV` the
arguments, `Runs` other scripts that it calls as functions of their arguments, `Uses` the fragments in front of it. A
script whose arguments begin with slot and sequence executes once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MAX_IDS = 1000
"""Ids per call: a few milliseconds of server time, and well below the limit of Lua's `unpack`."""
MAX_SETTLED = 500
"""Ids per call that settles messages, or reads how they have ended: it uses several structures for each id."""
MAX_MOVED = 250
"""Ids per call that moves or reads whole messages: twice the work for each id."""
COLLECT_LIMIT = 100
"""Messages that one call moves to the dead letter: the payloads move too."""
MIN_BYTES = 1 << 14
"""The smallest budget of bytes for one call: a server that does not let so much through is of no use."""
GUARDED = frozenset(
    {
        *("send", "send_one", "debounce", "collect", "cancel", "reschedule", "edit", "kill", "withdraw", "forget"),
        *("redrive", "dead_import", "schedule_put", "schedule_remove", "get", "outcomes", "await_ends"),
        *("move_out", "deaths_out", "schedules_out"),
    }
)
"""Scripts that place, or look for, what has an id or a name: in a partition they ask whether it belongs there.

Claims and settlements do not ask: what was claimed in a partition is settled there.
"""
ANSWERING_NUMBERS = frozenset({"pending_to_ready", "stage", "commit_staged"})
"""Scripts that read texts and answer numbers alone, so that a smaller budget makes no reply smaller.

As another script, which the server may not know yet, it would be executed after the claim that follows it.
"""
BUDGETS = (1 << 18, MIN_BYTES, 0)
"""Bytes to ask for, one after another, of a server that closes the connection while it sends a reply; one payload more
comes each time, however large. See `Script.reading`."""
SLOT_TTL = 86_400_000
"""Milliseconds after which an unused call slot is deleted: a day, far beyond any deadline of a call."""


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """One script: its text, and the contract from its header."""

    name: str
    text: bytes
    sha: bytes
    parts: tuple[str, ...]
    executes_once: bool

    @property
    def has_budget(self) -> bool:
        """Whether it reads payloads, or other texts of any length, within a budget of bytes, which may be reduced."""
        return b"\nlocal bytes_left = " in self.text and self.name not in ANSWERING_NUMBERS

    def reading(self, budget: int) -> Script:
        """Return this script with another budget of bytes that one call reads, itself if it has none.

        Its reply has large texts in pieces, see `whole`. With 0 the budget is the smallest, and a claim that is made
        again has sizes in the place of large payloads.
        """
        return _with_budget(self, budget)

    def guarded(self) -> Script:
        """Return this script for a partition: its last argument is the epoch of the client.

        It answers with the error `EPOCH` if the queue has another, unless it has been executed already.
        """
        return _with_guard(self)

    def variants(self) -> list[Script]:
        """Return it as it reads with each budget, itself first: all that a server may be asked to run."""
        kinds = [self, self.guarded()] if self.name in GUARDED else [self]
        return list({one.sha: one for kind in kinds for one in (kind, *map(kind.reading, BUDGETS))}.values())

    def commands_at(self, line: int) -> str:
        """Return the Redis commands on a line, to explain the server's errors: "'llen' or 'rpush'"."""
        found = re.findall(r"redis\.p?call\('(\w+)'", self.text.decode().splitlines()[line - 1])
        return " or ".join(f"'{name.lower()}'" for name in dict.fromkeys(found))


PIECES = b"\0pieces"
"""What begins a text in pieces."""
_IN_PIECES = b"""local function whole() %b
end
-- The server counts a text by the room that it takes, which may be twice as long: so it is sent in pieces.
local function in_pieces(value)
  if type(value) == 'table' then
    for n = 1, #value do value[n] = in_pieces(value[n]) end
  elseif type(value) == 'string' and #value > 65536 then
    local pieces = {'\\0pieces'}
    for first = 1, #value, 65536 do pieces[#pieces + 1] = string.sub(value, first, first + 65535) end
    return pieces
  end
  return value
end
return in_pieces(whole())
"""


def whole(reply: Any) -> Any:
    """Return a reply whose large texts are in pieces as it would be otherwise."""
    if not isinstance(reply, list):
        return reply
    return b"".join(reply[1:]) if reply[:1] == [PIECES] else [whole(one) for one in reply]


_GUARD = b"""do
  local epoch = table.remove(ARGV)
  local found = redis.call('HMGET', KEYS[%d], 'epoch', %b)
  if (found[1] or '0') ~= epoch and not (found[2] and string.match(found[2], '^%%d+') == %b) then
    return redis.error_reply('EPOCH ' .. (found[1] or '0'))
  end
end
"""


@cache
def _with_guard(script: Script) -> Script:
    parts = script.parts if "meta" in script.parts else (*script.parts, "meta")
    once = (b"ARGV[1]", b"ARGV[2]") if script.executes_once else (b"'epoch'", b"false")
    text = _GUARD % (parts.index("meta") + 1, *once) + script.text
    return replace(script, text=text, parts=parts, sha=_digest(text))


def _digest(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


@cache
def _with_budget(script: Script, budget: int) -> Script:
    if not script.has_budget:
        return script
    number = b"local bytes_left = %d" % (budget or MIN_BYTES)
    text = re.sub(rb"^local bytes_left = \d+$", number, script.text, flags=re.MULTILINE)
    if not budget:
        text = text.replace(b"\nlocal withholds = false", b"\nlocal withholds = true")
    text = _IN_PIECES % text
    return replace(script, text=text, sha=_digest(text))


@cache
def names(engine: str = "") -> tuple[str, ...]:
    """Return the names of all scripts of an engine; of the delay queue by default."""
    found = sorted(file.removesuffix(".lua") for file in read_all(engine) if "/" not in file)
    return tuple(f"{engine}/{name}" if engine else name for name in found)


@cache
def script(name: str) -> Script:
    """Return a script by name, with its fragments in front of it."""
    engine, _, file = name.rpartition("/")
    source = read_all(engine).get(f"{file}.lua")
    if source is None:
        raise FileNotFoundError(f"there is no script {name}")
    header = _header(source)
    fragments = [_fragment(engine, fragment) for fragment in re.findall(r"\w+", header.get("Uses", ""))]
    parts = tuple(entry.rpartition(": ")[2].split()[0] for entry in header["KEYS"].split(", "))
    functions = [_function(one, parts) for one in re.findall(r"\w+", header.get("Runs", ""))]
    text = "\n".join([*fragments, *functions, source]).encode()
    return Script(name, text, _digest(text), parts, header["ARGV"].startswith("slot, sequence"))


def keys_and_commands(name: str) -> tuple[set[str], set[str]]:
    """Return the parts of the keys and the commands that a script uses: what a user needs rights for."""
    called = re.findall(r"redis\.p?call\('(\w+)'(?:, '(\w+)')?", script(name).text.decode().lower())
    commands = {f"{word}|{second}" if word in {"xinfo", "xgroup", "memory"} else word for word, second in called}
    return set(script(name).parts), commands


def _function(name: str, parts: tuple[str, ...]) -> str:
    """Return a script as a function of its arguments, for a script whose keys have these parts."""
    one = script(name)
    keys = ", ".join(f"KEYS[{parts.index(part) + 1}]" for part in one.parts)
    return f"local function {name}(ARGV)\nlocal KEYS = {{{keys}}}\n{one.text.decode()}\nend"


def _fragment(engine: str, name: str) -> str:
    """Return a fragment of the engine, else of the delay queue."""
    path = f"lib/{name}.lua"
    return read_all(engine).get(path) or read_all("")[path]


@cache
def read_all(engine: str) -> Mapping[str, str]:
    """Return all scripts and fragments of an engine, '' for the delay queue: `ack.lua`, `lib/clock.lua`, in any folder.

    They are read together when an engine is made, and never again: the package may be replaced, or be gone, while its
    process runs. `importlib.resources` would load modules here. A process that forks while a consumer loads a module
    gets a child that waits for this module forever.
    """
    root: Path | Traversable = Path(__file__).parents[1]
    if not root.is_dir():  # it is in a zip file
        from importlib.resources import files

        root = files("delayq")
    return dict(_texts(root / (engine or "broker") / "lua"))


def _texts(folder: Path | Traversable, place: str = "") -> Iterator[tuple[str, str]]:
    for one in folder.iterdir():
        if one.name.endswith(".lua"):
            yield place + one.name, one.read_text("utf-8")
        elif one.is_dir():
            yield from _texts(one, "lib/" if one.name == "lib" else "")


def _header(source: str) -> dict[str, str]:
    """Return the labelled paragraphs of the comment at the top of a script."""
    lines: list[str] = []
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    labelled = re.split(r"(KEYS|ARGV|Returns|Re-run|Runs|Uses): ", " ".join(lines))[1:]
    return {label: body.strip() for label, body in zip(labelled[::2], labelled[1::2], strict=True)}
