"""The tables of the outbox, the same as `outbox.create` makes, and the model of the dashboard, which has none."""

from __future__ import annotations

from django.db import migrations, models

from delayq.django.models import ExactCharField


class Migration(migrations.Migration):
    """Makes them."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Dashboard",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ],
            options={
                "verbose_name": "queues",
                "verbose_name_plural": "queues",
                "managed": False,
                "default_permissions": ("view", "change"),
            },
        ),
        migrations.CreateModel(
            name="OutboxLock",
            fields=[("queue", ExactCharField(max_length=257, primary_key=True, serialize=False))],
            options={"db_table": "delayq_outbox_relay", "default_permissions": ()},
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("queue", ExactCharField(max_length=257)),
                ("message", ExactCharField(db_column="id", max_length=128)),
                ("operation", models.CharField(max_length=10)),
                ("due", models.CharField(max_length=24)),
                ("retries", models.BigIntegerField()),
                ("payload", models.BinaryField()),
                ("headers", models.BinaryField()),
                ("attributes", models.BinaryField()),
                ("inserted", models.BigIntegerField()),
                ("refused", models.TextField(null=True)),
            ],
            options={
                "verbose_name_plural": "outbox",
                "db_table": "delayq_outbox",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        condition=models.Q(("refused__isnull", False)),
                        fields=["queue", "message"],
                        name="delayq_outbox_refused",
                    )
                ],
            },
        ),
    )
