"""The web dashboard: queues, messages, workers, schedules and forecasts in a browser, as one ASGI app (extra `web`).

`delayq web` serves it. `web_app` makes the app to mount into a program of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.web.dashboard import web_app as web_app
    from delayq.web.viewers import Viewer as Viewer

__all__, __getattr__, __dir__ = attach(__name__)
