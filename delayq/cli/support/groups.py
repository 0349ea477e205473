"""Groups of commands that suggest the closest name for a typo, and commands whose help lists options in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from delayq.errors import did_you_mean
from delayq.values.other_names import GROUP_COMMANDS

DESTRUCTIVE = frozenset({"cancel", "kill", "purge", "remove"})
"""Commands that delete messages or schedules, or stop messages: one who accepts a suggestion may not read it."""


MAX_LISTED = 12
"""Commands or options that the error for an unknown one lists, if none is close."""


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command suggests a harmless one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the closest name if there is none."""
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"no command {name!r}{self.suggestion(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def suggestion(self, ctx: click.Context, name: str) -> str:
        """Return what another library's command is here, the command of a group of this very name, else the closest."""
        known = self.list_commands(ctx)
        ours = GROUP_COMMANDS.get(self.name or "", {}).get(name)
        if ours:
            return f": here it is {ours}"
        for group in known:
            inner = self.get_command(ctx, group)
            if isinstance(inner, click.Group) and name in inner.list_commands(ctx) and name not in DESTRUCTIVE:
                return f", did you mean '{group} {name}'?"
        hint = did_you_mean(name, known)
        if not hint and len(known) <= MAX_LISTED:
            return f": the commands are {', '.join(known)}"
        return "" if any(repr(one) in hint for one in DESTRUCTIVE) else hint


class GroupedCommand(click.Command):
    """A command with `groups`: a title and the options under it; the others are listed first.

    A name such as `--smtp-` stands for all options that begin with it.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *self._groups)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record:
                sections[self._title(max(param.opts, key=len))].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def _title(self, option: str) -> str:
        for title, names in self._groups.items():
            if any(option.startswith(name) if name.endswith("-") else option == name for name in names):
                return title
        return "Options"
