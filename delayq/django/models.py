"""A model without a table: who may look at the dashboard, and who may act there, are permissions of Django."""

from __future__ import annotations

from django.db import models


class Dashboard(models.Model):
    """What the permissions `delayq.view_dashboard` and `delayq.change_dashboard` are about."""

    class Meta:
        """No table, no migration."""

        managed = False
        default_permissions = ("view", "change")
        verbose_name = verbose_name_plural = "queues"
