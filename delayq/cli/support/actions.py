"""Actions: commands that open a queue, call a method of it and print what it returns. Each is a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import click

from delayq.broker.engine import Feature
from delayq.cli.support.groups import SuggestingGroup
from delayq.cli.support.options import json_option, queue_with
from delayq.cli.support.output import json_fields, json_value, print_json, print_line, print_note, print_rich

if TYPE_CHECKING:
    from delayq.cli.support.session import Session


class Note(str):
    """A line for stderr: it is no part of the result."""

    __slots__ = ()


@dataclass(frozen=True)
class QueueAction:
    """A command on a queue that exists."""

    name: str
    feature: Feature
    help: str
    """Its `{json}` stands for the shape of the JSON; without it there is no `--json`."""
    call: Callable[..., Any]
    """Gets the open queue, and the options by their names."""
    shown: Callable[[Any, Any], Any]
    """Returns what people read of the result: lines, notes and tables. Also gets the options, `queue` and `now`."""
    json: tuple[str, Any] = ("", None)
    """The names in the JSON, and the type of the result.

    The last is the name of the result, * for the names of its fields; those before are options, or the queue. One with
    a ? is left out if it is None.
    """
    options: Sequence[Callable[[Any], Any]] = ()
    short: str | None = None
    check: Callable[..., object] | None = None
    """Gets the options, and raises a usage error, before anything is opened."""
    of: Callable[[Feature], Callable[[Any], Any]] = queue_with
    """Adds the argument QUEUE: `queues_with` lets it mean several queues."""

    def command(self) -> click.Command:
        """Make the command."""
        options = [self.of(self.feature), *self.options, *([json_option] if self.json[0] else [])]
        function: Any = click.pass_obj(self._run)
        for option in reversed(options):
            function = option(function)
        text = self.help.replace("{json}", self._shape())
        return click.command(self.name, help=text, short_help=self.short)(function)

    def _run(self, session: Session, /, queue: str, *, as_json: bool = False, **options: Any) -> int:
        if self.check is not None:
            self.check(**options)
        found = self.call(session.existing_queue(queue), **options)
        if as_json:
            print_json(self._as_json(found, {"queue": queue, **options}))
        else:
            show(self.shown(found, SimpleNamespace(queue=queue, now=session.now, **options)))
        return getattr(found, "exit_code", 0)

    def _as_json(self, found: Any, options: dict[str, Any]) -> dict[str, Any]:
        *names, last = self.json[0].split()
        given = {name.rstrip("?"): options[name.rstrip("?")] for name in names}
        first = {name: value for name, value in given.items() if value is not None or name in names}
        return first | (json_fields(found) if last == "*" else {last: json_value(found)})

    def _shape(self) -> str:
        names, kind = self.json
        parts = [f'"{name}"' for name in names.split()[:-1] if name[-1] != "?"]
        shape = json_shape(kind)
        last = names.rpartition(" ")[2]
        parts.append(shape[1:-1] if last == "*" else f'"{last}": {shape}' if shape else f'"{last}"')
        return f"{{{', '.join(parts)}}}"


def action_group(
    name: str, about: str, actions: Iterable[QueueAction], kind: type[SuggestingGroup] = SuggestingGroup
) -> SuggestingGroup:
    """Return a group of commands, of which these are actions."""
    return kind(name, [action.command() for action in actions], help=about, no_args_is_help=False)


def show(parts: Any) -> None:
    """Print lines, notes and tables: one, or several."""
    for part in parts if isinstance(parts, Iterable) and not isinstance(parts, str) else [parts]:
        if isinstance(part, Note):
            print_note(part)
        elif isinstance(part, str):
            print_line(part)
        else:
            print_rich(part)


def json_shape(kind: Any) -> str:
    """Return the shape of a dataclass, or of a list of them, as JSON: `[{"id", "since"}, …]`; '' for a value."""
    if is_dataclass(kind):
        types = get_type_hints(kind)
        shapes = {one.name: one.metadata.get("json") or json_shape(types[one.name]) for one in fields(kind)}
        parts = (f'"{name}": {shape}' if shape else f'"{name}"' for name, shape in shapes.items())
        return f"{{{', '.join(parts)}}}"
    shape = next(filter(None, map(json_shape, get_args(kind))), "")
    return f"[{shape}, …]" if shape and getattr(kind, "__origin__", None) in (list, tuple) else shape
