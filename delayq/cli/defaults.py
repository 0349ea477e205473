"""Defaults from `[tool.delayq]` of a pyproject.toml: options by name, a table for each command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from delayq.cli.failure import did_you_mean

FILE = Path("pyproject.toml")


def config_option(function: Any) -> Any:
    """Add `--config`, which is read before the other options and gives them their defaults."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_load,
        help="Defaults: the table [tool.delayq] of this file.  [default: ./pyproject.toml]",
    )(function)


def _load(ctx: click.Context, _: click.Parameter, given: Path | None) -> None:
    path = given or FILE
    if not path.is_file():
        if given is not None:
            raise click.UsageError(f"there is no file {str(path)!r}", ctx)
        return
    ctx.default_map = read_defaults(path, ctx)


def read_defaults(path: Path, ctx: click.Context) -> dict[str, Any]:
    """Return the defaults that a file gives, as click takes them; what it does not understand is a usage error."""
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
            checked[str(options[name].name)] = _given(value, options[name], ctx, f"{where}.{key}")
        else:
            raise click.UsageError(f"{where}.{key}{did_you_mean(name, [*sorted(options), *commands])}", ctx)
    return checked


def _given(value: Any, option: click.Option, ctx: click.Context, where: str) -> Any:
    """Return a value as the command line would give it: numbers and times are read from text there, too."""
    if isinstance(value, list):
        if not option.multiple:
            raise click.UsageError(f"{where.replace('unknown key ', '')} takes one value, not several", ctx)
        return [_given(one, option, ctx, where) for one in value]
    return value if isinstance(value, bool | str) else str(value)
