"""delayq's bulk data work on Spark: from tables to reminders, from events to proof.

Importing it loads no PySpark; what is named here is loaded when it is first asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq.spark.archive import archive as archive
    from delayq.spark.archive import forget_archive as forget_archive
    from delayq.spark.archive import read_archive as read_archive
    from delayq.spark.audit import Audit as Audit
    from delayq.spark.audit import Finding as Finding
    from delayq.spark.audit import audit as audit
    from delayq.spark.ids import message_id as message_id
    from delayq.spark.load import Loaded as Loaded
    from delayq.spark.load import load as load
    from delayq.spark.plan import plan as plan
    from delayq.spark.report import report as report
    from delayq.spark.rules import Rule as Rule
    from delayq.spark.rules import read_rules as read_rules
    from delayq.spark.session import session as session
    from delayq.spark.snapshot import read_messages as read_messages
    from delayq.spark.source import register as register

__all__ = [
    # the pipelines
    "Rule",
    "read_rules",
    "plan",
    "Loaded",
    "load",
    "archive",
    "forget_archive",
    "read_archive",
    "report",
    "Audit",
    "Finding",
    "audit",
    # the data source
    "message_id",
    "read_messages",
    "register",
    "session",
]

_MODULES = {
    "archive": "delayq.spark.archive",
    "forget_archive": "delayq.spark.archive",
    "read_archive": "delayq.spark.archive",
    "Audit": "delayq.spark.audit",
    "Finding": "delayq.spark.audit",
    "audit": "delayq.spark.audit",
    "message_id": "delayq.spark.ids",
    "Loaded": "delayq.spark.load",
    "load": "delayq.spark.load",
    "plan": "delayq.spark.plan",
    "Rule": "delayq.spark.rules",
    "read_rules": "delayq.spark.rules",
    "session": "delayq.spark.session",
    "read_messages": "delayq.spark.snapshot",
    "register": "delayq.spark.source",
    "report": "delayq.spark.report",
}
"""Where each name comes from."""


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Importing the module `delayq.spark.session` would put it here, in place of the function of its name.
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Package
