"""Delivery adapters: callbacks that hand a message on, to a log, a webhook, a mail server or a program.

    queue.callback(Webhook("https://example.com/reminders", secret="whsec_…"))

Each takes a `Message`, acknowledges it by returning, and otherwise raises what is to become of it. All are safe to use
from several threads. `delayq worker --deliver …` runs them without code.
"""

from delayq.deliver.adapter import Adapter
from delayq.deliver.command import Command
from delayq.deliver.log import Log
from delayq.deliver.signature import verify
from delayq.deliver.smtp import Smtp
from delayq.deliver.webhook import Webhook

__all__ = ["Adapter", "Command", "Log", "Smtp", "Webhook", "verify"]
