"""The app `delayq.django`: finds the tasks of all apps; has commands, the outbox, permissions of the dashboard."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class DelayqConfig(AppConfig):
    """Imports the module `tasks` of each app, so that workers know the tasks and schedules that are declared there."""

    name = "delayq.django"
    label = "delayq"
    verbose_name = "delayq"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Find them, once all apps are loaded."""
        autodiscover_modules("tasks")
