"""The audit of a plan: each reminder is scheduled, delivered, dead or cancelled, and nothing contradicts it.

For Spark and DuckDB alike. Importing this package loads neither; each name is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.audit.audit import audit as audit
    from delayq.audit.audit_result import Audit as Audit
    from delayq.audit.audit_result import Finding as Finding

__all__, __getattr__, __dir__ = attach(__name__)
