"""A real browser for tests: the system's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
# A browser in a sandbox of its own has nothing to ask of the world.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-component-update",
    "--no-first-run",
]


def program() -> str:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium; `make test` as root installs it on Debian")
    return found


@contextmanager
def page(width: int = 1200, height: int = 900) -> Iterator[tuple[Page, list[str]]]:
    """A page, and everything that went wrong in it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=ARGUMENTS)
        try:
            found = browser.new_page(viewport={"width": width, "height": height})
            wrong: list[str] = []
            found.on("pageerror", lambda error: wrong.append(str(error)))
            found.on(
                "console", lambda told: wrong.append(told.text) if told.type == "error" else None
            )
            found.on("request", lambda asked: _only_files(asked.url, wrong))
            yield found, wrong
        finally:
            browser.close()


def _only_files(url: str, wrong: list[str]) -> None:
    if not url.startswith(("file:", "data:", "blob:")):
        wrong.append(f"asked for {url}")
