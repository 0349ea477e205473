"""A browser without a window for tests of ASGI apps: keeps cookies, sends an origin, follows nothing by itself."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import Any

import httpx


class Visitor:
    """Asks an ASGI app in this process, from an address of this machine."""

    def __init__(self, app: Any, *, base: str = "http://localhost", client: str = "127.0.0.1") -> None:
        """Come from `client` and name the host of `base`."""
        self.app, self.base = app, base
        self.cookies = httpx.Cookies()
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=True, client=(client, 50_000))

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request and return the reply."""

        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url=self.base, cookies=self.cookies) as client:
                reply = await client.request(method, path, **options)
                self.cookies = client.cookies
                return reply

        return asyncio.run(send())

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Load a page."""
        return self.request("GET", path, **options)

    def post(self, path: str, fields: dict[str, str], *, origin: str | None = None, **headers: str) -> httpx.Response:
        """Send a form, by default from a page of the app itself."""
        sent = {"Origin": self.base if origin is None else origin, **headers}
        return self.request("POST", path, data=fields, headers={name: value for name, value in sent.items() if value})

    def form_token(self, page: str = "/login") -> str:
        """Return the token in the forms of a page."""
        found = re.search(r'name="form_token" value="([\w-]+)"', self.get(page).text)
        assert found, f"no form on {page}"
        return found[1]

    def submit(self, page: str, action: str, **fields: str) -> httpx.Response:
        """Send a form of a page; returns the page it leads to."""
        reply = self.post(action, {"form_token": self.form_token(page), **fields})
        return self.get(reply.headers["Location"]) if reply.status_code == 303 else reply


def text_of(reply: httpx.Response) -> str:
    """Return what a page says: without tags and white space."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", reply.text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())
