"""Public names of a package that are loaded at first use (PEP 562)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from types import CodeType, ModuleType
from typing import Any

_IMPORT = re.compile(rb"^    from (\S+) import (\w+) as \2$", re.MULTILINE)


def attach(package: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package.

    Its public names are the imports under `if TYPE_CHECKING:` in its `__init__.py`. The source is read instead of
    running them: so each name is written once, and type checkers see it too.
    """
    module = sys.modules[package]
    homes = _read_homes(module)

    class Package(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            # Importing the module `delayq.spark.session` would put it here, in place of the function of its name.
            if not (name in homes and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(module), *homes})

    module.__class__ = Package
    return list(homes), load, names


def _read_homes(module: Any) -> dict[str, str]:
    """Return the public names of a package, each with the module that defines it."""
    loader = module.__loader__
    try:  # the loader reads packages in zip files as well
        source = loader.get_data(module.__spec__.origin)
    except OSError:
        source = b""
    homes = {name.decode(): home.decode() for home, name in _IMPORT.findall(source)}
    return homes or _homes_in(loader.get_code(module.__name__))


def _homes_in(code: CodeType) -> dict[str, str]:
    """Return the same from byte code, for programs that are shipped without sources."""
    import dis  # rarely needed

    homes: dict[str, str] = {}
    home = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            home = step.argval
        elif step.opname == "IMPORT_FROM" and home.startswith("delayq.") and home != __name__:
            homes[step.argval] = home
    return homes
