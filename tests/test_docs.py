"""The documentation says what the code does."""

import json
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import trilithon
from tools import architecture, reference
from trilithon.policies.dhalion import extensions, parts
from trilithon.recording.files import parse_recording
from trilithon.spec.job_file import parse_job

ROOT = Path(__file__).resolve().parent.parent
GLOBS = ("*.md", "docs/**/*.md", "examples/**/*.md", "src/**/*.md")
PAGES = sorted(page for glob in GLOBS for page in ROOT.glob(glob))


@pytest.mark.parametrize("path", reference.files(), ids=lambda path: path.name)
def test_a_reference_page_is_what_the_code_says(path: Path) -> None:
    """If this fails, `make reference` writes it anew."""
    assert path.read_text(encoding="utf-8") == reference.files()[path]


def test_the_picture_of_the_architecture_shows_the_layers_in_their_order() -> None:
    """If this fails, mend `tools/architecture.py`; `make reference` draws the picture anew."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        one for one in project["tool"]["importlinter"]["contracts"] if one["id"] == "layers"
    )
    enforced = [name.strip() for row in contract["layers"] for name in row.split("|")]
    assert architecture.FILE.read_text(encoding="utf-8") == architecture.render()
    drawn = [name for row in architecture.LAYERS for name, _, _ in row]
    assert [f"trilithon.{name}" for name in drawn] == enforced


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in targets(page):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def targets(page: Path) -> list[str]:
    """What a page links to or shows."""
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)", text)
    return [*links, *re.findall(r'\b(?:src|srcset)="([^"]+)"', text)]


def test_every_picture_is_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {(page.parent / target).resolve() for page in pages for target in targets(page)}
    assert set((ROOT / "docs" / "images").iterdir()) <= shown


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        ahead += [page.parent / link for link in links]
    assert {page.resolve() for page in PAGES} == seen


def test_the_job_in_the_docs_is_a_good_one() -> None:
    page = (ROOT / "docs/concepts/jobs.md").read_text(encoding="utf-8")
    assert parse_job(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]).id == "ads/pageload"


def test_the_snapshot_in_the_docs_is_the_example_and_prints_what_is_shown() -> None:
    page = (ROOT / "docs/concepts/snapshots.md").read_text(encoding="utf-8")
    example = (ROOT / "docs/examples/overload.json").read_text(encoding="utf-8")
    assert json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0]) == json.loads(example)
    assert len(parse_recording(example)) == 1
    shown = re.findall(
        r"\$ trilithon advise docs/examples/overload.json\n(.*?)```", page, re.DOTALL
    )[0]
    printed = _run("advise", "docs/examples/overload.json")
    assert _lines(shown) == _lines(printed)


def test_the_health_policy_in_the_docs_is_the_example() -> None:
    page = (ROOT / "docs/concepts/dhalion.md").read_text(encoding="utf-8")
    example = ROOT / "examples/own-policy/src/trilithon_headroom/__init__.py"
    registering, shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert shown == example.read_text("utf-8")
    try:
        exec(registering, {**runpy.run_path(str(example)), "trilithon": trilithon})  # noqa: S102 - ours
        assert "headroom" in extensions.health_policies()
        assert "busy" in parts.parts("detectors")
    finally:
        extensions.unregister("headroom")
        parts.unregister_part("detectors", "busy")


def test_the_promises_in_the_docs_are_what_is_printed() -> None:
    page = (ROOT / "docs/concepts/latency.md").read_text(encoding="utf-8")
    line, shown = re.findall(r"\$ trilithon (advise .*?)\n(.*?)```", page, re.DOTALL)[0]
    assert _lines(shown) == _lines(_run(*shlex.split(line)))


def test_the_plan_in_the_readme_is_what_is_printed(tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"\$ trilithon plan job.yaml\n(.*?)\n\$", page, re.DOTALL)[0]
    _run("init", str(tmp_path / "job.yaml"))
    assert _lines(shown) == _lines(_run("plan", str(tmp_path / "job.yaml")))


def test_the_readme_names_commands_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"`make ([a-z]+)`|^make ([a-z]+)", page.read_text(), re.MULTILINE)
        for quoted, plain in named:
            assert (quoted or plain) in targets


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _run(*arguments: str) -> str:
    program = Path(sys.executable).with_name("trilithon")
    return subprocess.run(  # noqa: S603 - our own program
        [program, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def test_the_changelog_has_the_version_of_the_package_as_its_latest_release() -> None:
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert headings[0] == "Unreleased"
    releases = [re.fullmatch(r"(\d+\.\d+\.\d+) – (\d{4}-\d\d-\d\d)", one) for one in headings[1:]]
    assert all(releases)
    assert releases[0] is not None
    assert releases[0].group(1) == trilithon.__version__
