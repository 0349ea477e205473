"""Defaults of options from `[tool.delayq]` in pyproject.toml, with a table for each command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from delayq.errors import did_you_mean

FILE = Path("pyproject.toml")


def _load(ctx: click.Context, _: click.Parameter, config: Path | None) -> None:
    path = config or FILE
    try:
        there = path.is_file()
    except OSError as error:  # its name is too long, say
        raise click.UsageError(f"the file --config names cannot be read: {error.strerror}", ctx) from error
    if not there:
        if config is not None:
            raise click.UsageError(f"there is no file {str(path)!r}", ctx)
        return
    ctx.default_map = read_defaults(path, ctx)


def read_defaults(path: Path, ctx: click.Context) -> dict[str, Any]:
    """Read the defaults from a file, in click's format; raise a usage error for an unknown key."""
    import tomllib

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}", ctx) from error
    tool = tables.get("tool")
    table = tool.get("delayq", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise click.UsageError(f"{path}: tool.delayq must be a table", ctx)
    return _checked(table, ctx.command, ctx, f"{path}: unknown key tool.delayq")


def _checked(table: dict[str, Any], command: click.Command, ctx: click.Context, where: str) -> dict[str, Any]:
    options = {
        max(param.opts, key=len).lstrip("-").replace("-", "_"): param
        for param in command.params
        if isinstance(param, click.Option) and param.expose_value and not param.hidden
    }
    commands = command.list_commands(ctx) if isinstance(command, click.Group) else []
    checked: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if isinstance(command, click.Group) and key in commands and isinstance(value, dict):
            found = command.get_command(ctx, key)
            if found is not None:
                checked[key] = _checked(value, found, ctx, f"{where}.{key}")
        elif name in options and not isinstance(value, dict):
            checked[str(options[name].name)] = _convert(value, options[name], ctx, f"{where}.{key}")
        else:
            raise click.UsageError(f"{where}.{key}{did_you_mean(name, [*sorted(options), *commands])}", ctx)
    return checked


def _convert(value: Any, option: click.Option, ctx: click.Context, where: str) -> Any:
    """Return a value like the command line passes it: numbers and times as text, to be parsed by their type."""
    if isinstance(value, list):
        if not option.multiple:
            raise click.UsageError(f"{where.replace('unknown key ', '')} takes one value, not a list", ctx)
        return [_convert(one, option, ctx, where) for one in value]
    return value if isinstance(value, bool | str) else str(value)


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    is_eager=True,  # it sets the defaults of the other options
    expose_value=False,
    callback=_load,
    help="Read defaults from [tool.delayq] in this file.  [default: ./pyproject.toml]",
)
