"""The dashboard within the app of another program: every path begins with that of the mount."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from delayq import State
from delayq.web import Viewer, web_app
from tests.support.visitor import Visitor, text_of

TOKEN = "a-token-of-24-characters"


def of_starlette(app):
    return Starlette(routes=[Mount("/ops/queues", app)])


def of_fastapi(app):
    api = FastAPI()
    api.mount("/ops/queues", app)
    return api


@pytest.fixture(params=[of_starlette, of_fastapi], ids=["starlette", "fastapi"])
def mounted(request, full, redis_url):
    """`mounted(**options)` visits the dashboard below /ops/queues."""
    opened = []

    def visit(**options):
        opened.append(web_app(url=redis_url, **options))
        return Visitor(request.param(opened[-1]))

    yield visit
    for app in opened:
        app.state.site.source.close()


def test_every_link_stays_within_the_mount(mounted):
    visitor = mounted(write=True)
    paths, seen = {"/ops/queues/"}, set()
    while paths - seen:
        path = (paths - seen).pop()
        seen.add(path)
        page = visitor.get(path)
        assert page.status_code == 200, path
        links = re.findall(r'(?:href|src|action|data-live)="([^"#]+)"', page.text)
        assert all(link.startswith("/ops/queues/") for link in links), path
        paths |= {link.replace("&amp;", "&") for link in re.findall(r'(?:href|src)="([^"#]+)"', page.text)}
    assert len(seen) > 20


def test_login_and_action_within_the_mount(mounted, full):
    visitor = mounted(token=TOKEN, write=True)
    away = visitor.get("/ops/queues/message?queue=orders&id=waits").headers["Location"]
    assert away == "/ops/queues/login?next=%2Fmessage%3Fqueue%3Dorders%26id%3Dwaits"
    page = visitor.submit(away, "/ops/queues/login", token=TOKEN, next="/message?queue=orders&id=waits")
    assert "waits pending" in text_of(page)
    assert {cookie.path for cookie in visitor.cookies.jar} == {"/ops/queues"}
    visitor.submit("/ops/queues/", "/ops/queues/do/kill", queue="orders", id="waits")
    assert full.get("waits").state is State.DEAD


def test_login_of_the_program(mounted):
    def viewer_of(request):
        return Viewer("ada", ["mails"]) if request.headers.get("x-session") == "1" else None

    visitor = mounted(viewer_of=viewer_of)
    assert visitor.get("/ops/queues/").status_code == 403
    page = visitor.get("/ops/queues/", headers={"X-Session": "1"})
    assert "ada" in text_of(page)
    assert "orders" not in page.text
