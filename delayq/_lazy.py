"""Names of a package that are loaded when they are first asked for, as PEP 562 allows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package whose names come from the modules that `homes` says."""
    module = sys.modules[package]

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
    return load, names
