"""Packages that are not installed, as far as a test is concerned."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

Without = Callable[..., None]


@pytest.fixture
def without() -> Iterator[Without]:
    """`without("pyarrow", "delayq.bulk")` hides a package from the modules of others, which are imported anew.

    After the test those of before are back: in `sys.modules`, and as attributes of their packages, where other tests
    find what they patch.
    """
    with ExitStack() as after:

        def hide(package: str, *users: str) -> None:
            for name in (package, *users):
                after.callback(_put_back, name, _forget(name))
            sys.modules[package] = None  # type: ignore[assignment] # what makes an import fail

        yield hide


def _forget(name: str) -> dict[str, object]:
    return {one: sys.modules.pop(one) for one in [*sys.modules] if one == name or one.startswith(f"{name}.")}


def _put_back(name: str, modules: dict[str, object]) -> None:
    _forget(name)
    sys.modules.update(modules)  # type: ignore[arg-type]
    package, _, child = name.rpartition(".")
    if name in modules and package in sys.modules:
        setattr(sys.modules[package], child, modules[name])
