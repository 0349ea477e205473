"""Django: a backend of its tasks, a worker as a management command, and the dashboard in the admin (extra `django`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.django.admin_dashboard import with_dashboard as with_dashboard
    from delayq.django.backend import DelayqBackend as DelayqBackend
    from delayq.django.declared import cron as cron
    from delayq.django.declared import every as every
    from delayq.django.declared import rrule as rrule
    from delayq.django.tasks_api import task as task
    from delayq.django.tasks_api import task_backends as task_backends

__all__, __getattr__, __dir__ = attach(__name__)
