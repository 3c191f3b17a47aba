"""A real browser for tests: the system's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
# What a page may take on a slow machine, in all that is waited for.
PATIENCE_MS = 120_000
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
def page(
    width: int = 1200, height: int = 900, *, url: str = "file:", dark: bool = False
) -> Iterator[tuple[Page, list[str]]]:
    """A page, and everything that went wrong in it. It may ask for `url` only, and what it has."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program(), args=ARGUMENTS, timeout=PATIENCE_MS
        )
        try:
            opened = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
            )
            opened.set_default_timeout(PATIENCE_MS)
            wrong: list[str] = []
            opened.on("pageerror", lambda error: wrong.append(str(error)))
            opened.on(
                "console", lambda told: wrong.append(told.text) if told.type == "error" else None
            )
            opened.on("request", lambda asked: _only_known(asked.url, url, wrong))
            yield opened, wrong
        finally:
            browser.close()


def _only_known(asked: str, url: str, wrong: list[str]) -> None:
    if not asked.startswith((url, "data:", "blob:")):
        wrong.append(f"asked for {asked}")
