"""The dashboard in a browser: hostile contents, narrow screens, the keyboard alone, and figures that change."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from delayq import DelayQueue, NewMessage, Reject, State
from delayq.web import live_figures, web_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(180)

PATIENCE = 100_000
"""Milliseconds to wait for something to appear, on a machine that is busy."""

XSS = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    '"><svg onload=alert(4)>',
    "' onfocus=alert(5) autofocus='",
    '" autofocus onfocus="alert(6)',
    "<iframe srcdoc='<script>alert(7)</script>'>",
    "<a href=javascript:alert(8) autofocus>x</a>",
    "</pre></td></table><script>alert(9)</script>",
    "</title><script>alert(10)</script>",
    "<body onload=alert(11)>",
    "<details open ontoggle=alert(12)>",
    "{{ 7 * 7 }}{% for x in y %}${alert(13)}",
    "<div hx-get=/ hx-trigger=load hx-on::load=alert(14)>",
    "<style>@import '/x';</style><link rel=stylesheet href=/x>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(15)'>",
    "<form action=/do/pause method=post><button autofocus>x</button></form>",
    "<base href=//evil.example/>",
    "data: x\n\nevent: figures\ndata: <script>alert(16)</script>",
    "\u202e<scr\x00ipt>alert(17)</scr\x00ipt>\x1b]0;x\x07",
    "<math><mtext></mtext><script>alert(18)</script></math>",
    "&lt;script&gt;alert(19)&lt;/script&gt;",
]
ALL = "".join(XSS)
PATHS = {
    "queues": "/",
    "queue": "/queue?queue=orders",
    "pending": "/messages?queue=orders",
    "backoff": "/messages?queue=orders&state=backoff",
    "completed": "/messages?queue=orders&state=completed",
    "waits": "/message?queue=orders&id=waits",
    "dead": "/dead?queue=orders",
    "spent": "/message?queue=orders&id=spent",
    "done": "/message?queue=orders&id=done",
    "search": "/search?queue=orders&text=script",
    "workers": "/workers?queue=orders",
    "schedules": "/schedules?queue=orders",
    "forecast": "/forecast?queue=orders",
    "limits": "/limits?queue=orders",
    "error": "/queue?queue=%3Cscript%3Ealert(20)%3C%2Fscript%3E",
}

WIDE = ["queues", "queue", "pending", "waits", "dead", "limits"]
"""The pages that are looked at on a wide screen, too."""


@contextmanager
def serving(port: int = 0, **options: Any) -> Iterator[str]:
    """Serve a dashboard from a thread; the end of the block cuts off whoever looks."""
    import uvicorn

    app = web_app(**options)
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", port)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(60)
            app.state.site.source.close()
    assert not thread.is_alive()


@contextmanager
def looking(browser: Browser, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """Open a page, and collect dialogs, errors, and what the content security policy has blocked."""
    found: list[str] = []
    with browser.new_page(**options) as page:
        page.set_default_timeout(PATIENCE)
        page.on("dialog", lambda dialog: (found.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda message: message.type in ("error", "warning") and found.append(message.text))
        page.on("pageerror", lambda error: found.append(str(error)))
        yield page, found


@pytest.fixture
def hostile(queue, redis_client) -> DelayQueue[Any]:
    """A queue with the corpus in everything that somebody may choose."""

    @queue.callback
    def process(message):
        if message.payload == "reject":
            raise Reject(ALL)
        if message.payload == "fail":
            raise ValueError(ALL)
        return {"result": XSS}

    queue.send_delay_msg({"all": XSS}, "1h", id="waits", headers={f"x{n}": text for n, text in enumerate(XSS)})
    queue.send_delay_msg(ALL, "2h", id="html")
    queue.send_delay_msg("done", id="done", retention="1h")
    queue.send_delay_msg("reject", id="rejected")
    queue.send_delay_msg("fail", id="spent", retries=0)
    queue.send_delay_msg("fail", id="failed", retries=3)
    queue.run(burst=True)
    queue.schedules.add("daily", cron="0 9 * * *", payload=XSS, labels=["a"], headers={"x": ALL})
    queue.pause(reason=ALL.replace("\n", " ").replace("\x00", "").replace("\x1b", "").replace("\x07", "")[:200])
    queue.pause(name="sms", reason="<script>alert(21)</script>")
    redis_client.sadd("delayq:queues", *XSS)
    return queue


def test_hostile_contents_do_nothing_and_pages_fit(browser, hostile, redis_url):
    """No dialog, no report of the policy, no error, no page wider than the screen, in light and dark."""
    queue = hostile
    assert queue.get("spent").state is State.DEAD
    with serving(url=redis_url, write=True) as address:
        for width, scheme in ((1280, "light"), (360, "dark")):
            view = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
            with looking(browser, **view) as (page, found):
                seen = {}
                for name in WIDE if width > 1000 else PATHS:
                    page.goto(f"{address}{PATHS[name]}")
                    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
                    assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                    assert page.get_by_role("heading", level=1).is_visible(), name
                    assert page.evaluate("document.querySelectorAll('script').length") == 2, name
                    assert (
                        page.evaluate("document.querySelectorAll('iframe, base, svg[onload], [onerror]').length") == 0
                    )
                    seen[name] = page.evaluate("document.body.innerText")
                assert [text for text in found if not text.startswith("Failed to load resource")] == []  # a 404
                shown = [name for name, text in seen.items() if "<script>alert(1)</script>" in text]
                assert {"queue", "pending", "waits", "dead"} <= set(shown)
                page.goto(f"{address}/")
                page.locator("#live-state", has_text="live").wait_for()
                background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert background == ("rgb(250, 250, 249)" if scheme == "light" else "rgb(20, 23, 26)")
    assert queue.counts().dead == 2


def test_fifty_messages_on_a_phone_take_less_than_three_screens(browser, queue, redis_url):
    queue.send_many([NewMessage({"n": n, "text": "x" * 200}, name="invoice", delay="1h") for n in range(60)])
    for n in range(60):
        queue.send({"n": n, "text": "x" * 200}, id=f"dead-{n}", name="invoice", delay="1h")
        queue.kill(f"dead-{n}")
    paths = ("/messages?queue=orders", "/dead?queue=orders", "/search?queue=orders&text=xx")
    with serving(url=redis_url, write=True) as address:
        for scheme in ("light", "dark"):
            view = {"viewport": {"width": 400, "height": 800}, "color_scheme": scheme}
            with looking(browser, **view) as (page, found):
                for path in paths:
                    page.goto(f"{address}{path}")
                    assert page.locator("a.id").count() == 50, path
                    assert page.locator("a.id").first.is_visible()
                    assert page.get_by_text("invoice").first.is_visible()
                    assert page.evaluate("document.documentElement.scrollHeight") < 3 * 800, path
                    assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
                page.goto(f"{address}/limits?queue=orders")
                right = page.evaluate("document.querySelector('.tabs [aria-current]').getBoundingClientRect().right")
                assert right <= 400  # the row of links is scrolled to the current one
                assert found == []


@pytest.mark.long
def test_the_keyboard_alone_and_without_javascript(browser, full, redis_url):
    """Logs in, finds a dead message, and mends a wrong rate to send it again; every place with the focus shows it."""
    token = "a-token-of-24-characters"
    with serving(url=redis_url, write=True, token=token) as address:
        for scripts in (True, False):
            options = {"viewport": {"width": 360, "height": 800}}
            with ExitStack() as stack:
                context = stack.enter_context(browser.new_context(java_script_enabled=scripts, **options))
                page = context.new_page()
                page.set_default_timeout(PATIENCE)
                page.goto(f"{address}/dead?queue=orders")
                page.locator("#token:focus").wait_for()
                page.keyboard.type(token)
                page.keyboard.press("Enter")
                page.wait_for_url("**/dead?queue=orders")
                page.keyboard.press("Tab")
                assert page.locator(":focus").inner_text() == "Skip to the content"
                page.keyboard.press("Enter")
                _tab_to(page, "Redrive")
                page.keyboard.press("Enter")
                page.keyboard.press("Tab")
                page.keyboard.type("fast")
                page.keyboard.press("Enter")
                page.locator("[name=rate][value=fast]:focus").wait_for()
                assert page.get_by_role("alert").inner_text().startswith('"Rate" must look like')
                page.keyboard.press("Control+A")
                page.keyboard.type("100/s")
                page.keyboard.press("Tab")
                assert page.locator(":focus").inner_text().startswith("Send ")
                if scripts:
                    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
                page.keyboard.press("Enter")
                page.get_by_text("again.").wait_for()
        assert full.counts().dead == 0


def _tab_to(page: Page, text: str) -> None:
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.locator(":focus").inner_text().strip() == text:
            return
    raise AssertionError(f"{text} cannot be reached")


@pytest.mark.long
def test_two_viewers_see_changes_and_outlive_the_server(browser, queue, redis_url, monkeypatch):
    monkeypatch.setattr(live_figures, "EVERY", 0.1)
    queue.send_delay_msg(1, "1h")
    with looking(browser) as (one, _), looking(browser) as (other, _):
        with serving(url=redis_url) as address:
            one.goto(f"{address}/")
            other.goto(f"{address}/queue?queue=orders")
            for page in (one, other):
                page.locator("#live-state", has_text="live").wait_for()
            one.locator("#queue-orders").focus()
            queue.send_many([2, 3], "1h")
            one.locator("td[data-label=Pending]", has_text="3").wait_for()
            other.locator("#tile-pending", has_text="3").wait_for()
            assert one.locator(":focus").get_attribute("id") == "queue-orders"
        for page in (one, other):
            page.locator("#live-state.lost").wait_for()
        queue.send_many([4], "1h")
        with serving(int(address.rpartition(":")[2]), url=redis_url):
            one.locator("td[data-label=Pending]", has_text="4").wait_for()
            other.locator("#tile-pending", has_text="4").wait_for()
            one.close()
            other.close()
