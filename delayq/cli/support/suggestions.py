"""Groups of commands that suggest the closest name for a typo, but never a command that deletes."""

from __future__ import annotations

import click

from delayq.errors import did_you_mean

DESTRUCTIVE = frozenset({"cancel", "kill", "purge", "remove"})
"""Commands that delete messages or schedules, or stop messages: one who accepts a suggestion may not read it."""


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command suggests a harmless one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the closest name if there is none."""
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"no command {name!r}{self._suggestion(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def _suggestion(self, ctx: click.Context, name: str) -> str:
        """Return the command of a group that has this very name, else the closest of the own commands."""
        known = self.list_commands(ctx)
        for group in known:
            inner = self.get_command(ctx, group)
            if isinstance(inner, click.Group) and name in inner.list_commands(ctx) and name not in DESTRUCTIVE:
                return f", did you mean '{group} {name}'?"
        hint = did_you_mean(name, known)
        return "" if any(repr(one) in hint for one in DESTRUCTIVE) else hint
