"""A command whose help lists its options in groups, for commands with many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class GroupedCommand(click.Command):
    """A command with `groups`: a title and the options under it; the others are listed first."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group."""
        title_of = {name: title for title, names in self._groups.items() for name in names}
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *self._groups)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record:
                title = next((title_of[opt] for opt in param.opts if opt in title_of), "Options")
                sections[title].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
