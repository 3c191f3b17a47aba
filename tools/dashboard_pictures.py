"""Draws the pictures of the dashboard in docs/images, with the system's Chromium.

    .venv/bin/python tools/dashboard_pictures.py

The showcase runs on the simulated cluster, round by round and faster than time, until a moment at
which intents are missed and decisions were made; the same moment every time.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import browser  # noqa: E402 - after the path to it
from tests.service.dashboard.showcase import Showcase, showcase  # noqa: E402
from trilithon.service.web_server import serving_in_background  # noqa: E402

IMAGES = ROOT / "docs" / "images"
MOMENT_S = 566.0
JOB = "/dashboard/jobs/ads/pageload"
# Name, address, width, height, dark.
PICTURES = (
    ("dashboard-cluster", "/dashboard", 1440, 1010, False),
    ("dashboard-cluster-dark", "/dashboard", 1440, 1010, True),
    ("dashboard-job", JOB, 1440, 1180, False),
    ("dashboard-job-dark", JOB, 1440, 1180, True),
    (
        "dashboard-what-if",
        f"{JOB}/what-if?op.transform=2&op.join=11&op.project=2",
        1440,
        830,
        False,
    ),
    ("dashboard-phone", "/dashboard", 390, 1180, False),
)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        showcase(Path(folder), MOMENT_S) as shown,
        serving_in_background(shown.app) as url,
        sync_playwright() as playwright,
    ):
        chromium = playwright.chromium.launch(
            executable_path=browser.program(), args=browser.ARGUMENTS
        )
        for name, path, width, height, dark in PICTURES:
            page = chromium.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
            )
            draw(page, shown, url, path, IMAGES / f"{name}.png")
            page.close()
        chromium.close()


def draw(page: Page, shown: Showcase, url: str, path: str, file: Path) -> None:
    page.goto(f"{url}/dashboard/login")
    page.get_by_label("Token").fill(shown.token())
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{url}/dashboard")
    page.goto(url + path)
    page.wait_for_timeout(1000)  # plots draw themselves
    page.screenshot(path=file)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
