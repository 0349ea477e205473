"""Bulk data without Spark: plan and load tables that fit into memory, export and import queues of any size.

`delayq.spark` plans and loads on a cluster, by the same rules and with the same ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.bulk.cold.cold_follow import follow_cold as follow_cold
    from delayq.bulk.cold.cold_messages import cold_messages as cold_messages
    from delayq.bulk.cold.cold_pass import ColdMoved as ColdMoved
    from delayq.bulk.cold.cold_pass import move_cold as move_cold
    from delayq.bulk.cold.cold_reading import ColdMessage as ColdMessage
    from delayq.bulk.cold.cold_reading import ColdStatus as ColdStatus
    from delayq.bulk.cold.cold_reading import cold_status as cold_status
    from delayq.bulk.cold.cold_reading import find_cold as find_cold
    from delayq.bulk.export import export_messages as export_messages
    from delayq.bulk.files.table_files import read_table as read_table
    from delayq.bulk.files.table_files import write_table as write_table
    from delayq.bulk.import_messages import Imported as Imported
    from delayq.bulk.import_messages import import_messages as import_messages
    from delayq.bulk.load import load as load
    from delayq.bulk.load_run import Loaded as Loaded
    from delayq.bulk.message_ids import id_of as id_of
    from delayq.bulk.plan import plan as plan
    from delayq.bulk.plan import refused_rows as refused_rows
    from delayq.bulk.reading.snapshot import read_messages as read_messages
    from delayq.bulk.reminder_rules import Rule as Rule
    from delayq.bulk.reminder_rules import read_rules as read_rules

__all__, __getattr__, __dir__ = attach(__name__)
