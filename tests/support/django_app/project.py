"""The settings of a Django project for programs of the tests; the environment says where database and Redis are.

`DJANGO_DATABASE` is a file of SQLite, or the folder of the socket of a PostgreSQL.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def database(place: str) -> dict[str, Any]:
    """Return the settings of a database."""
    if not Path(place).is_dir():
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": place, "OPTIONS": {"timeout": 60}}
    return {"ENGINE": "django.db.backends.postgresql", "HOST": place, "USER": "tester", "NAME": "postgres"}


SECRET_KEY = "for tests only"
USE_TZ = True
DATABASES = {"default": database(os.environ["DJANGO_DATABASE"])}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "delayq.django", "tests.support.django_app"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TASKS = {
    "default": {
        "BACKEND": "delayq.django.DelayqBackend",
        "QUEUES": ["default", "emails"],
        "OPTIONS": {"url": os.environ["DELAYQ_URL"], "enqueue": "outbox", "tick": "50ms", "deadline": "5s"},
    }
}
