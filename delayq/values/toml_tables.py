"""Files of tables in TOML, such as `[schedules.NAME]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from delayq.errors import ConfigurationError, did_you_mean


def read_tables(path: str | Path, name: str) -> Any:
    """Return what a TOML file has under a name, a plural: its tables `[name.NAME]`, which are to be checked.

    Raises `ConfigurationError`, which names the file, if it cannot be read or has anything else.
    """
    import tomllib  # few processes read such a file

    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"cannot read the {name} in {path}: {error}") from error
    for key in tables:
        if key != name:
            hint = did_you_mean(key, (name,)) or f"; write a {name.removesuffix('s')} as a table [{name}.NAME]"
            raise ConfigurationError(f"{path}: unknown table {key!r}{hint}")
    return tables.get(name, {})
