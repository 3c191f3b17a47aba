"""Draws docs/images/demo.svg: the last screen of `make demo` in a real terminal.

The demo runs in tmux for about five minutes, on the machine that this is run on. tmux then gives
back what stands on the screen, colours included, and rich draws it. The words below the picture in
README.md follow from it. A screen that lacks the dashboard's link or the totals is not drawn.

    .venv/bin/python tools/demo_picture.py                    # run the demo and draw its screen
    .venv/bin/python tools/demo_picture.py --screen FILE      # draw a screen that was kept
    .venv/bin/python tools/demo_picture.py --keep FILE        # run, draw, and keep the screen
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "images" / "demo.svg"
README = ROOT / "README.md"
COLUMNS, ROWS = 104, 70
SOCKET = "trilithon-demo-picture"
FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"


def tmux(*arguments: str) -> str:
    """A server of its own, which nobody else's sessions are part of."""
    command = ["tmux", "-L", SOCKET, "-f", "/dev/null", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def screen() -> str:
    """Runs the demo in a terminal and returns what its screen shows at the end."""
    if shutil.which("tmux") is None:
        sys.exit("The demo needs a terminal to run in: install tmux.")
    program = f"{sys.executable} {ROOT / 'tools' / 'demo.py'}"
    signal = f"tmux -L {SOCKET} wait-for -S over"
    size = ("-x", str(COLUMNS), "-y", str(ROWS))
    command = f"echo '$ make demo'; COLORTERM=truecolor {program}; {signal}; sleep 60"
    tmux("new-session", "-d", "-s", "demo", *size, command)
    try:
        tmux("wait-for", "over")
        return tmux("capture-pane", "-e", "-p", "-t", "demo")
    finally:
        tmux("kill-server")


def draw(shown: str) -> str:
    """The screen as an SVG that asks nobody for fonts."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Text.from_ansi(shown.rstrip()), no_wrap=True, crop=True)
    drawn = console.export_svg(title="make demo", unique_id="demo")
    drawn = re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"font-family: (Fira Code, monospace|arial)", f"font-family: {FONT}", drawn)
    return re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE)


def caption(shown: str) -> str:
    """The picture in words, by the totals at its end."""
    plain = Text.from_ansi(shown).plain
    totals = re.search(r"^all +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)\s*$", plain, re.MULTILINE)
    if "/dashboard/" not in plain or totals is None:
        sys.exit("The screen has no link to the dashboard or no totals: the demo did not end well.")
    _, before, worst, end = totals.groups()
    return (
        "A terminal with the demo: the load of one job doubles, the utility of all jobs falls from "
        f"{before} to {worst}, Henge moves slots, and the utility is {end} at the end"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--screen", type=Path, help="draw this screen, and do not run the demo")
    arguments.add_argument("--keep", type=Path, help="keep the screen in this file")
    options = arguments.parse_args()
    shown = options.screen.read_text(encoding="utf-8") if options.screen else screen()
    if options.keep:
        options.keep.write_text(shown, encoding="utf-8")
    words, readme = caption(shown), README.read_text(encoding="utf-8")
    line = f"![{words}](docs/images/demo.svg)"
    README.write_text(
        re.sub(r"^!\[.*\]\(docs/images/demo\.svg\)$", lambda _: line, readme, flags=re.MULTILINE),
        encoding="utf-8",
    )
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(draw(shown), encoding="utf-8")


if __name__ == "__main__":
    main()
