"""Delivery adapters: callbacks that pass a message on to a log, a webhook, a mail server or a program.

    queue.callback(Webhook("https://example.com/reminders", secret="whsec_…"))

Each takes a `Message` and acknowledges it by returning; otherwise it raises `Retry`, `Reject` or `StopWorker`. All are
thread-safe. `delayq worker --deliver …` runs them without code.
"""

from delayq.delivery.adapter import Adapter
from delayq.delivery.command import Command
from delayq.delivery.log import Log
from delayq.delivery.smtp import Smtp
from delayq.delivery.webhook import Webhook, verify

__all__ = ["Adapter", "Command", "Log", "Smtp", "Webhook", "verify"]
