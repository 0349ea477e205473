"""delayq's bulk data work on Spark: from tables to reminders, from events to proof.

Importing it loads no PySpark; what is named here is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.lazy import attach

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

_HOMES = {
    # the pipelines
    "Rule": "delayq.spark.rules",
    "read_rules": "delayq.spark.rules",
    "plan": "delayq.spark.plan",
    "Loaded": "delayq.spark.load",
    "load": "delayq.spark.load",
    "archive": "delayq.spark.archive",
    "forget_archive": "delayq.spark.archive",
    "read_archive": "delayq.spark.archive",
    "report": "delayq.spark.report",
    "Audit": "delayq.spark.audit",
    "Finding": "delayq.spark.audit",
    "audit": "delayq.spark.audit",
    # the data source
    "message_id": "delayq.spark.ids",
    "read_messages": "delayq.spark.snapshot",
    "register": "delayq.spark.source",
    "session": "delayq.spark.session",
}
"""Where each name comes from."""

__all__ = list(_HOMES)
__getattr__, __dir__ = attach(__name__, _HOMES)
