"""A browser for tests that look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Open a Chromium: Playwright's own, else one on PATH; skip the test if there is none.

    An open one runs an event loop in this thread, so that no other can be started.
    """
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        for program in [None, *filter(None, map(shutil.which, PROGRAMS))]:
            try:
                browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False)
            except api.Error as error:
                refused = str(error).strip().splitlines()[0]
                continue
            with browser:
                yield browser
            return
        pytest.skip(f"no Chromium found (scripts/ensure-browser installs one): {refused}")
