"""Plan and load tables without Spark: CSV, JSON Lines and Parquet, as large as the memory of one process allows.

`delayq.spark` does the same on a cluster, by the same rules and with the same ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.bulk.load import load as load
    from delayq.bulk.loaded import Loaded as Loaded
    from delayq.bulk.message_ids import id_of as id_of
    from delayq.bulk.plan import plan as plan
    from delayq.bulk.reminder_rules import Rule as Rule
    from delayq.bulk.reminder_rules import read_rules as read_rules
    from delayq.bulk.table_files import read_table as read_table
    from delayq.bulk.table_files import write_table as write_table

__all__, __getattr__, __dir__ = attach(__name__)
