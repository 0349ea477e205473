"""Bulk data pipelines on Spark: plan, load, report, audit.

Importing this package loads no PySpark; each name is loaded on first use.

Imports run one way: `pipelines` → `datasource` → `session`, `spark_errors`. What reports and audits ask is in
`delayq.report` and `delayq.audit`, for other engines, too; `delayq.archive` archives without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.audit.audit_result import Audit as Audit
    from delayq.audit.audit_result import Finding as Finding
    from delayq.bulk.load_run import Loaded as Loaded
    from delayq.bulk.reminder_rules import Rule as Rule
    from delayq.bulk.reminder_rules import read_rules as read_rules
    from delayq.spark.datasource.source import read_messages as read_messages
    from delayq.spark.datasource.source import register as register
    from delayq.spark.datasource.staging.settling import Settled as Settled
    from delayq.spark.datasource.staging.settling import settle as settle
    from delayq.spark.pipelines.archive_reader import archive_start as archive_start
    from delayq.spark.pipelines.archive_reader import read_archive as read_archive
    from delayq.spark.pipelines.archive_views import create_views as create_views
    from delayq.spark.pipelines.cold_reader import read_cold as read_cold
    from delayq.spark.pipelines.load import load as load
    from delayq.spark.pipelines.message_ids import message_id as message_id
    from delayq.spark.pipelines.plan import plan as plan
    from delayq.spark.pipelines.plan import refused_rows as refused_rows
    from delayq.spark.pipelines.spark_audit import audit as audit
    from delayq.spark.pipelines.spark_report import report as report
    from delayq.spark.pipelines.time_lapse import lapse as lapse
    from delayq.spark.session import session as session

__all__, __getattr__, __dir__ = attach(__name__)
