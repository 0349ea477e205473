"""The dashboard within the admin: its login, its permissions, at its address."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest

from delayq.errors import ConfigurationError

PATH = "/admin/delayq/dashboard/"


@pytest.fixture
def user(tasks) -> Any:
    """`user(*permissions)` makes somebody of the staff, and returns the cookies of the login."""
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    def make(*permissions: str, is_staff: bool = True) -> dict[str, str]:
        made = User.objects.create(username=f"ada-{uuid4()}", is_staff=is_staff)
        for permission in permissions:
            made.user_permissions.add(Permission.objects.get(codename=permission))
        client = Client()
        client.force_login(made)
        return {name: morsel.value for name, morsel in client.cookies.items()}

    return make


def ask(path: str, cookies: dict[str, str], **options: Any) -> httpx.Response:
    """Ask the site, as `asgi.py` serves it."""
    from django.core.asgi import get_asgi_application

    from delayq.django import with_dashboard

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(with_dashboard(get_asgi_application(), **options))
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver", cookies=cookies) as client:
            return await client.get(path)

    return asyncio.run(send())


def test_who_may_look_sees_the_queues_of_the_backend(tasks, user):
    tasks.add.enqueue(1)
    page = ask(PATH, user("view_dashboard"))
    assert page.status_code == 200
    assert f'href="{PATH}' in page.text
    assert "default" in page.text


def test_only_who_may_change_can_act(tasks, user):
    tasks.add.enqueue(1)
    reader, writer = (
        ask(f"{PATH}queue?queue=default", user("view_dashboard", *more)) for more in ((), ("change_dashboard",))
    )
    assert (reader.status_code, writer.status_code) == (200, 200)
    assert "<form" not in reader.text.partition("<main")[2]
    assert "<form" in writer.text.partition("<main")[2]


@pytest.mark.parametrize("who", ["nobody", "no staff", "without the permission"])
def test_others_are_led_to_the_login_of_the_admin(user, who):
    cookies = {}
    if who != "nobody":
        cookies = user(*(["view_dashboard"] if who == "no staff" else []), is_staff=who != "no staff")
    answer = ask(PATH, cookies)
    assert (answer.status_code, answer.text) == (302, "")
    assert answer.headers["location"] == f"/admin/login/?next={PATH}"


def test_all_else_is_answered_by_django(user):
    assert ask("/admin/login/", {}).status_code == 200
    index = ask("/admin/", user("view_dashboard"))
    assert f'href="{PATH}"' in index.text


def test_without_asgi_the_entry_says_what_to_do(user):
    from django.test import Client

    client = Client()
    for name, value in user("view_dashboard").items():
        client.cookies[name] = value
    answer = client.get(PATH)
    assert (answer.status_code, b"delayq web" in answer.content) == (501, True)
    assert client.get(f"{PATH}add/").status_code == 403


def test_another_backend_has_no_dashboard(configure):
    from delayq.django import with_dashboard
    from delayq.django.tasks_api import _PACKAGE

    configure(BACKEND=f"{_PACKAGE}.backends.immediate.ImmediateBackend")
    with pytest.raises(ConfigurationError, match="is no DelayqBackend"):
        with_dashboard(None)
