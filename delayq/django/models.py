"""The tables of the outbox, and a model without one: who may look at the dashboard are permissions of Django."""

from __future__ import annotations

from typing import Any

from django.db import models


class Dashboard(models.Model):
    """What the permissions `delayq.view_dashboard` and `delayq.change_dashboard` are about."""

    class Meta:
        """No table, no migration."""

        managed = False
        default_permissions = ("view", "change")
        verbose_name = verbose_name_plural = "queues"


class ExactCharField(models.CharField):
    """A text whose case matters, also in MySQL."""

    def db_parameters(self, connection: Any) -> Any:
        """Return the type of its column."""
        found = super().db_parameters(connection)
        return {**found, "collation": "utf8mb4_bin"} if connection.vendor == "mysql" else found


class OutboxMessage(models.Model):
    """What is to be sent, as in `delayq.outbox.tables`: so all relays share the table."""

    seq = models.BigAutoField(primary_key=True)
    queue = ExactCharField(max_length=257)
    message = ExactCharField(max_length=128, db_column="id")
    operation = models.CharField(max_length=10)
    due = models.CharField(max_length=24)
    retries = models.BigIntegerField()
    payload = models.BinaryField()
    headers = models.BinaryField()
    attributes = models.BinaryField()
    inserted = models.BigIntegerField()
    refused = models.TextField(null=True)

    class Meta:
        """The table of all who send by an outbox."""

        db_table = "delayq_outbox"
        default_permissions = ()
        verbose_name_plural = "outbox"
        indexes = (
            models.Index(
                fields=["queue", "message"], name="delayq_outbox_refused", condition=models.Q(refused__isnull=False)
            ),
        )


class OutboxLock(models.Model):
    """A row for each queue, which the relay that works on it has locked."""

    queue = ExactCharField(max_length=257, primary_key=True)

    class Meta:
        """The table of all relays."""

        db_table = "delayq_outbox_relay"
        default_permissions = ()
