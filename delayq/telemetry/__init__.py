"""Traces and metrics for OpenTelemetry (extra `otel`): `instrument(queue)`, and `delayq worker --otel`.

It only uses the API of OpenTelemetry: without an SDK that your program sets up, nothing is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach
from delayq.errors import ConfigurationError

try:
    import opentelemetry.trace  # noqa: F401 - a missing extra is told here, before any module needs it
except ImportError as error:
    raise ConfigurationError("telemetry needs the extra: pip install 'delayq[otel]'") from error

if TYPE_CHECKING:
    from delayq.telemetry.instrumentation import has_sdk as has_sdk
    from delayq.telemetry.instrumentation import instrument as instrument

__all__, __getattr__, __dir__ = attach(__name__)
