"""The entry of the dashboard in the admin. `with_dashboard` serves what is behind it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpResponse

from delayq.django.models import Dashboard

TEXT = """The dashboard of the queues is an ASGI app, and this request was answered without it.
Wrap the application in asgi.py: application = with_dashboard(get_asgi_application())
A site that runs on WSGI alone runs the dashboard beside it: delayq web
"""


@admin.register(Dashboard)
class DashboardAdmin(admin.ModelAdmin):
    """Links to the dashboard, for who may look at it."""

    def has_add_permission(self, *_: Any) -> bool:
        """Return False: there are no rows."""
        return False

    def has_delete_permission(self, *_: Any) -> bool:
        """Return False: there are no rows."""
        return False

    def changelist_view(self, *_: Any, **__: Any) -> HttpResponse:
        """Say what is missing: under ASGI, `with_dashboard` answers at this address."""
        return HttpResponse(TEXT, content_type="text/plain; charset=utf-8", status=501)
