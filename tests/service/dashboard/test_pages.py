"""The dashboard's pages: who sees what, log-in, headers, and the numbers in them."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from starlette.testclient import TestClient

from tests.service.dashboard.showcase import BASE, Showcase, showcase
from tests.service.dashboard.test_parts import checked, write_decision
from tools import demo
from trilithon.cli.client import Client
from trilithon.cli.top_command import _figures
from trilithon.cli.top_screen import TopScreen
from trilithon.engines.composite import ApplicationStatus, State
from trilithon.model.change import Severity
from trilithon.model.intent import Constraint
from trilithon.service.access.roles import Role
from trilithon.service.access.sessions import COOKIE, CSRF_HEADER
from trilithon.service.dashboard.error_budget import ErrorBudgets
from trilithon.service.dashboard.log_in import CODE_S, owner_link
from trilithon.service.dashboard.pages import STATIC
from trilithon.service.monitor.alerts import ActiveAlert

JOB = "/dashboard/jobs/ads/pageload"
PAGES = (
    "/dashboard",
    JOB,
    f"{JOB}/what-if",
    f"{JOB}/operators/join",
    "/dashboard/jobs/security/intrusion",
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Showcase]:
    """A quarter of an hour of the showcase: decisions were made, some intents are missed."""
    with showcase(tmp_path_factory.mktemp("showcase"), 240.0) as made:
        yield made


@pytest.fixture
def admin(shown: Showcase) -> TestClient:
    return shown.logged_in()


def csrf_of(page: str) -> str:
    match = re.search(r'name="csrf-token" content="([^"]+)"', page)
    assert match is not None
    return match[1]


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_strict_headers_and_neither_scripts_nor_styles_of_its_own(
    admin: TestClient, path: str
) -> None:
    page = admin.get(path)
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page.text)
    assert not re.search(r"(src|href)=\"(?!/|#)", page.text)
    assert "None" not in text_of(page.text)


def test_no_file_of_the_dashboard_names_another_host() -> None:
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.[a-z]", text), path.name


def test_files_are_served_and_their_folders_are_not_listed(shown: Showcase) -> None:
    visitor = shown.visitor()
    for path in ("static/dashboard.js", "static/dashboard.css", "vendor/uplot-1.6.32.min.css"):
        assert visitor.get(f"/dashboard/{path}").status_code == 200
    assert visitor.get("/dashboard/static/").status_code == 404
    assert visitor.get("/dashboard/static/../routes.py").status_code == 404


@pytest.mark.parametrize("path", PAGES)
def test_who_is_not_logged_in_is_sent_to_the_log_in_and_back(shown: Showcase, path: str) -> None:
    visitor = shown.visitor()
    answer = visitor.get(path, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/dashboard/login?to={path}")
    assert visitor.get(path).status_code == 401  # not a browser: a problem document
    form = visitor.get(answer.headers["location"]).text
    assert f'value="{path}"' in form
    done = visitor.post("/dashboard/login", content=f"token={shown.token()}&to={quote(path)}")
    assert (done.status_code, done.headers["location"]) == (303, path)
    assert visitor.get(path).status_code == 200


def test_the_front_door_leads_to_the_dashboard(shown: Showcase) -> None:
    assert shown.visitor().get("/").headers["location"] == "/dashboard"


def test_a_wrong_token_is_refused_and_the_session_is_out_of_reach_for_scripts(
    shown: Showcase,
) -> None:
    visitor = shown.visitor()
    refused = visitor.post("/dashboard/login", content="token=guessed")
    assert refused.status_code == 403
    assert "not valid" in refused.text
    assert COOKIE not in refused.headers.get("set-cookie", "")
    cookie = visitor.post("/dashboard/login", content=f"token={shown.token()}").headers[
        "set-cookie"
    ]
    assert "Secure" not in cookie
    over_tls = TestClient(shown.app, base_url="https://127.0.0.1", follow_redirects=False)
    answer = over_tls.post("/dashboard/login", content=f"token={shown.token()}")
    assert "Secure" in answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert shown.token() not in cookie


@pytest.mark.parametrize(
    "to", ["https://evil.example/", "//evil.example", "/api/v1/jobs", "/dashboardevil", "\\\\evil"]
)
def test_a_log_in_never_leads_to_another_site(shown: Showcase, to: str) -> None:
    content = f"token={shown.token()}&to={quote(to)}"
    answer = shown.visitor().post("/dashboard/login", content=content)
    assert answer.headers["location"] == "/dashboard"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),  # a form in a sandboxed frame
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": BASE, "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": BASE, "Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": BASE, "Sec-Fetch-Site": "none"}, 303),
        ({"Origin": BASE}, 303),
        ({}, 303),  # not a browser
    ],
)
def test_another_site_can_not_log_a_browser_in(
    shown: Showcase, headers: dict[str, str], status: int
) -> None:
    content = f"token={shown.token()}"
    answer = shown.visitor().post("/dashboard/login", content=content, headers=headers)
    assert answer.status_code == status
    assert (COOKIE in answer.headers.get("set-cookie", "")) is (status == 303)


def test_the_log_in_form_sends_its_origin(shown: Showcase) -> None:
    """With `no-referrer` browsers send `Origin: null` with a form, which is refused."""
    policy = shown.visitor().get("/dashboard/login").headers["referrer-policy"]
    assert policy == "same-origin"


def test_another_site_can_not_log_a_browser_in_by_a_link(shown: Showcase) -> None:
    """The link would log it in as whoever made the link."""
    headers = {"Authorization": f"Bearer {shown.token()}"}
    path = shown.visitor().post("/api/v1/login-codes", headers=headers).json()["path"]
    for site in ("cross-site", "same-site"):
        answer = shown.visitor().get(path, headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 403
        assert "address bar" in answer.text
        assert "set-cookie" not in answer.headers
    # It was not used up.
    own = shown.visitor().get(path, headers={"Sec-Fetch-Site": "none"})
    assert (own.status_code, own.headers["location"]) == (303, "/dashboard")


def test_a_link_with_a_code_logs_in_once_and_not_for_long(shown: Showcase) -> None:
    def link() -> str:
        headers = {"Authorization": f"Bearer {shown.token()}"}
        answer = shown.visitor().post("/api/v1/login-codes", headers=headers)
        return str(answer.json()["path"])

    path = link()
    visitor = shown.visitor()
    assert visitor.get(path).headers["location"] == "/dashboard"
    assert visitor.get("/dashboard").status_code == 200
    again = shown.visitor().get(path)
    assert again.status_code == 403
    assert "used already" in again.text
    late = link()
    shown.wall.at_s += CODE_S + 1
    assert shown.visitor().get(late).status_code == 403
    shown.wall.at_s -= CODE_S + 1


def test_the_link_of_a_demo_works_as_long_as_it_runs(tmp_path: Path) -> None:
    with showcase(tmp_path, 4.0) as made:
        link = owner_link(made.app)
        made.wall.at_s += 100 * CODE_S
        visitor = made.visitor()
        assert visitor.get(link).status_code == 303
        assert "cluster admin" in visitor.get("/dashboard").text
        assert made.visitor().get(link).status_code == 403


def test_the_demo_serves_its_daemon_and_prints_a_link_that_logs_in(tmp_path: Path) -> None:
    with showcase(tmp_path, 4.0) as made, demo.dashboard(made.daemon) as link:
        assert link.startswith("http://127.0.0.1:")
        with httpx2.Client(trust_env=False, follow_redirects=True, timeout=120) as http:
            page = http.get(link)
        assert page.status_code == 200
        assert "ads/pageload" in page.text


def test_who_logs_out_is_out(shown: Showcase) -> None:
    visitor = shown.logged_in()
    page = visitor.get("/dashboard").text
    assert visitor.post("/dashboard/logout").status_code == 403
    answer = visitor.post("/dashboard/logout", headers={CSRF_HEADER: csrf_of(page)})
    assert answer.status_code == 204
    assert visitor.get("/dashboard").status_code == 401


def test_jobs_stand_in_the_order_of_lost_utility_as_in_top(
    shown: Showcase, admin: TestClient
) -> None:
    page = admin.get("/dashboard").text
    table = page[page.index('id="jobs"') :]
    order = re.findall(r'<tr role="row" data-key="([a-z]+/[a-z]+)"', table)[:5]
    headers = {"Authorization": f"Bearer {shown.daemon.token}"}
    api = httpx2.Client(
        transport=shown.visitor()._transport, base_url=f"{BASE}/api/v1", headers=headers
    )
    screen = TopScreen()
    screen.take(_figures(Client(api)), [])
    assert order == [job["job"] for job in screen.jobs]
    assert any(job["met"] is False for job in screen.jobs)
    assert len({job["lost_utility"] for job in screen.jobs}) > 1
    assert "which costs" in text_of(page)


def test_a_constraint_that_is_missed_is_a_missed_intent_everywhere(tmp_path: Path) -> None:
    """Pages and the error budget counted thresholds alone, and said that the intent was met."""
    with showcase(tmp_path, 30.0) as made:
        job = made.controller.state.jobs["science/features"].job
        tight = Constraint((job.operators[0].name,), 0.001, 10.0)
        reading = Constraint((job.edges[0].name,), 1000.0, 5.0)
        limits = (tight, reading)
        made.daemon.commands.apply(replace(job, intent=replace(job.intent, constraints=limits)))
        made.run(90.0)
        facts = made.daemon.monitor.last.jobs[job.id]
        assert (facts.met, facts.utility) == (False, facts.max_utility)  # its thresholds are met
        page = made.logged_in().get(f"/dashboard/jobs/{job.id}").text
        assert "missed" in text_of(page[page.index("<h2>Intent</h2>") :])[:40]
        assert f"mean of {job.operators[0].name} ≤" in text_of(page)
        cluster = text_of(made.logged_in().get("/dashboard").text)
        assert f"mean of {job.operators[0].name} ≤" in cluster
        assert f"mean of {job.edges[0].name} ≤ 1 s over 5 seconds" in cluster
        budget = ErrorBudgets(made.daemon).of(job.id, made.controller.clock.now_s())
        assert budget.missed_s > 0


class Attributes(HTMLParser):
    """The attributes of every element that has an id, and attributes that one has twice."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.by_id: dict[str, dict[str, str | None]] = {}
        self.twice: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        self.twice += [(tag, name) for name in set(names) if names.count(name) > 1]
        if (id_ := dict(attrs).get("id")) is not None:
            self.by_id[id_] = dict(attrs)


def test_a_plot_has_every_threshold_of_the_intent_and_those_of_a_new_one(tmp_path: Path) -> None:
    """Each had an attribute of the same name, of which a browser keeps the first."""
    with showcase(tmp_path, 10.0) as made:
        headers = {"Authorization": f"Bearer {made.daemon.token}"}
        browser = made.logged_in()

        def plots(*thresholds: dict[str, Any]) -> list[str | None]:
            body = {"intent": {"priority": 2.0, "slo": thresholds}}
            path = "/api/v1/jobs/ads/pageload/intent"
            answer = made.visitor().put(path, json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            page = Attributes(browser.get(JOB).text)
            assert page.twice == []
            names = ("latency-plot", "juice-plot")
            return [page.by_id[name]["data-thresholds"] for name in names]

        p95 = {"metric": "latency", "statistic": "p95", "at_most": "250 ms"}
        p99 = {"metric": "latency", "statistic": "p99", "at_most": "1 second"}
        juice = {"metric": "juice", "at_least": 0.9}
        assert plots(p95, juice, p99) == ["p95_ms:250.0 p99_ms:1000.0", "juice:0.9"]
        assert plots(p99) == ["p99_ms:1000.0", ""]


@pytest.mark.parametrize("path", PAGES)
def test_no_element_has_an_attribute_twice(admin: TestClient, path: str) -> None:
    assert Attributes(admin.get(path).text).twice == []


def test_a_job_is_explained_by_its_last_decision(shown: Showcase, admin: TestClient) -> None:
    (row, *_) = [row for row in shown.journal.decisions() if row.job is not None]
    page = text_of(admin.get("/dashboard").text)
    assert row.sentence in page
    decision = text_of(admin.get(f"/dashboard/decisions?id={quote(row.id)}").text)
    assert row.sentence in decision
    for name in row.numbers:
        assert name in decision
    assert admin.get("/dashboard/decisions?id=none").status_code == 404


def test_the_page_of_a_decision_names_the_one_that_reverted_it(
    shown: Showcase, admin: TestClient
) -> None:
    row = next(row for row in shown.journal.decisions() if row.job is not None and row.granted)
    path = f"/dashboard/decisions?id={quote(row.id)}"
    assert "Reverted" not in text_of(admin.get(path).text)
    last_s = shown.controller.clock.now_s()
    back = replace(row, id="back", reason="REVERSION", causes=(row.id,), time_s=last_s)
    write_decision(shown.journal, back)
    page = admin.get(path).text
    assert '<span class="chip note">reverted</span>' in page
    assert "Reverted by back" in text_of(page)
    shown.journal.database.write("DELETE FROM decision WHERE id = ?", "back")


def test_the_graph_has_every_operator_with_its_numbers(shown: Showcase, admin: TestClient) -> None:
    page = admin.get("/dashboard/jobs/security/intrusion").text
    svg = page[page.index('<svg class="graph"') : page.index("The same numbers as a table")]
    record = shown.controller.state.jobs["security/intrusion"]
    for operator in record.job.operators:
        now, most = record.wanted.parallelism[operator.name], operator.parallelism.max
        assert f"{now} / {now} / {most}" in svg
        assert f"/operators/{operator.name}" in svg
    for label in ("rate", "busy", "back-pressure", "queue", "skew", "waiting", "predicted"):
        assert svg.count(f">{label}<") == len(record.job.operators)


def test_the_page_of_an_operator_has_what_was_predicted_beside_what_was_measured(
    shown: Showcase, admin: TestClient
) -> None:
    path = f"{JOB}/operators/join"
    assert "measured waiting" not in text_of(admin.get(path).text)
    row = replace(checked("checked", 2.0, 3.0, shown.controller.clock.now_s()), job="ads/pageload")
    write_decision(shown.journal, row)
    page = admin.get(path).text
    assert page.count('<circle class="point"') == 1
    assert "3 2 ms 3 ms" in text_of(page)
    assert "/dashboard/decisions?id=checked" in page
    assert "measured waiting" not in text_of(admin.get(f"{JOB}/operators/parse").text)
    shown.journal.database.write("DELETE FROM decision WHERE id = ?", "checked")


def test_what_was_not_measured_is_not_a_number(tmp_path: Path) -> None:
    with showcase(tmp_path, 2.0) as fresh:
        browser = fresh.logged_in()
        page = text_of(browser.get("/dashboard").text)
        assert "n/a" in page
        job = text_of(browser.get(JOB).text)
        assert "busy n/a" in job
        assert "parallelism n/a / 6 / 32" in job
        assert "needs a running job" in text_of(browser.get(f"{JOB}/what-if").text)


def test_applications_are_listed_where_there_are_several(
    shown: Showcase, admin: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Applications" not in admin.get("/dashboard").text
    since_s = shown.daemon.controller.clock.now_s() - 90
    status = ApplicationStatus("ads", State.LOST, since_s, ("ads/pageload", "ads/other"))
    monkeypatch.setattr(shown.daemon, "applications", lambda: (status,))
    assert re.search(r"Jobs ads lost .*ago 2 Machines", text_of(admin.get("/dashboard").text))


def test_a_tenant_sees_its_own_and_nothing_of_others(shown: Showcase) -> None:
    browser = shown.logged_in({"ads": Role.VIEWER})
    page = browser.get("/dashboard").text
    assert "ads/pageload" in page
    for other in ("shop", "security", "science", "logs"):
        assert f"{other}/" not in text_of(page)
    assert "Machines" not in page
    headers = {"Accept": "text/html"}
    for path in ("", "/what-if", "/operators/first"):
        answer = browser.get(f"/dashboard/jobs/shop/orders{path}", headers=headers)
        assert answer.status_code == 404
        assert "There is no job" in text_of(answer.text)
    assert browser.get("/dashboard/plots/jobs/shop/orders").status_code == 404
    whole = shown.logged_in().get("/dashboard/plots/cluster").json()
    own = browser.get("/dashboard/plots/cluster").json()
    assert own["lines"]["maximum"][-1] == 35
    assert whole["lines"]["maximum"][-1] == 95
    other = next(row.id for row in shown.journal.decisions() if row.job == "shop/orders")
    assert browser.get(f"/dashboard/decisions?id={quote(other)}").status_code == 404


def test_other_jobs_are_not_named_in_the_reasons_of_ones_own(shown: Showcase) -> None:
    own = [row for row in shown.journal.decisions() if row.job == "ads/pageload"]
    row = next(row for row in own if "shop" in row.sentence)
    browser = shown.logged_in({"ads": Role.VIEWER})
    for path in (JOB, f"/dashboard/decisions?id={quote(row.id)}"):
        page = text_of(browser.get(path).text)
        assert "another tenant's job" in page
        assert "shop/orders" not in page


def test_the_api_names_no_other_tenants_job_in_sentences(shown: Showcase) -> None:
    """Explanations of one's own job named the jobs that slots were taken from."""
    ads, owner = shown.logged_in({"ads": Role.VIEWER}), shown.logged_in()
    alert = ActiveAlert("WASTE", Severity.WARNING, "ads/pageload", "Less than shop/orders.", 1.0)
    shown.daemon.monitor.alerts._recent.append(alert)
    for path in ("jobs/ads/pageload/explanation", "jobs/ads/pageload/history", "decisions"):
        assert "shop/orders" in owner.get(f"/api/v1/{path}", params={"limit": 1000}).text, path
    for path in (
        "jobs/ads/pageload/explanation jobs/ads/pageload/history decisions alerts jobs"
        " jobs/ads/pageload snapshot figures cluster health"
    ).split():
        answer = ads.get(f"/api/v1/{path}")
        assert answer.status_code == 200
        assert "shop/orders" not in answer.text, path
    assert "Less than another tenant's job." in ads.get("/dashboard").text.replace("&#39;", "'")


def test_who_may_only_look_has_no_buttons_and_changes_nothing(shown: Showcase) -> None:
    browser = shown.logged_in({"ads": Role.VIEWER})
    page = browser.get(JOB).text
    assert 'data-action="pause"' not in page
    headers = {CSRF_HEADER: csrf_of(page)}
    refused = browser.put(
        "/api/v1/jobs/ads/pageload/priority", json={"priority": 99}, headers=headers
    )
    assert refused.status_code == 403
    assert shown.controller.state.jobs["ads/pageload"].job.intent.priority == 35


def test_an_editor_changes_the_priority_with_the_sessions_token_only(shown: Showcase) -> None:
    browser = shown.logged_in({"science": Role.EDITOR})
    api_path = "/api/v1/jobs/science/features"
    page = browser.get("/dashboard/jobs/science/features").text
    assert 'data-action="pause"' in page
    assert browser.put(f"{api_path}/priority", json={"priority": 6}).status_code == 403
    headers = {CSRF_HEADER: csrf_of(page)}
    answer = browser.put(f"{api_path}/priority", json={"priority": 6}, headers=headers)
    assert answer.status_code == 200
    assert shown.controller.state.jobs["science/features"].job.intent.priority == 6
    bad = browser.put(f"{api_path}/priority", json={"priority": -1}, headers=headers)
    assert bad.status_code == 422
    browser.put(f"{api_path}/priority", json={"priority": 5}, headers=headers)


def test_alerts_are_those_of_the_api_that_the_caller_may_see(tmp_path: Path) -> None:
    with showcase(tmp_path, 10.0) as made:
        alert = ActiveAlert("JOB_DOWN", Severity.CRITICAL, "shop/orders", "It fell over.", 1.0)
        made.daemon.monitor.alerts._active[alert.key] = alert
        assert "It fell over." in made.logged_in().get("/dashboard").text
        other = made.logged_in({"ads": Role.VIEWER}).get("/dashboard").text
        assert "It fell over." not in other
        assert "Nothing needs you" in other


def test_a_job_that_is_being_changed_says_so(tmp_path: Path) -> None:
    with showcase(tmp_path, 10.0) as made:
        browser = made.logged_in()
        assert "Reconfiguring" not in browser.get(JOB).text
        record = made.controller.state.jobs["ads/pageload"]
        record.wanted = record.wanted.rescaled({"join": 8}).next_generation()
        page = browser.get(JOB).text
        assert "Reconfiguring" in page
        assert "×6 → 8" in text_of(page)
        assert "6 / 8 / 32" in text_of(page)


def test_a_paused_job_says_so_and_has_no_figures_of_before(tmp_path: Path) -> None:
    with showcase(tmp_path, 30.0) as made:
        made.daemon.commands.pause("ads/pageload")
        made.run(10.0)
        browser = made.logged_in()
        page = browser.get(JOB).text
        assert "Paused by its owner" in page
        assert 'data-action="resume"' in page
        assert "busy n/a" in text_of(page)
        made.daemon.commands.resume("ads/pageload")
        made.run(30.0)
        assert "busy n/a" not in text_of(browser.get(JOB).text)


def test_what_if_predicts_beside_the_present_and_keeps_to_the_bounds(
    shown: Showcase, admin: TestClient
) -> None:
    before = shown.controller.state.jobs["ads/pageload"].wanted
    page = admin.get(f"{JOB}/what-if?load=4&op.join=999&op.nobody=3&op.filter=x").text
    assert 'name="op.join" min="1" max="32" step="1" value="32"' in page
    assert "falls behind" in page
    assert "∞" in page
    assert "op.nobody" not in page
    assert admin.get(f"{JOB}/what-if?load=-1").status_code == 422
    assert shown.controller.state.jobs["ads/pageload"].wanted == before


def test_plots_have_the_past_and_then_only_what_is_new(shown: Showcase, admin: TestClient) -> None:
    first = admin.get("/dashboard/plots/jobs/ads/pageload").json()
    assert len(first["times"]) > 10
    assert set(first["lines"]) >= {"p50_ms", "p95_ms", "p99_ms", "juice"}
    changed = [row for row in shown.journal.decisions("ads/pageload") if row.granted]
    assert first["marks"] == [row.time_s for row in changed]
    assert changed
    last_s = first["times"][-1]
    assert admin.get(f"/dashboard/plots/jobs/ads/pageload?since_s={last_s}").json()["times"] == []
    shown.run(4.0)
    more = admin.get(f"/dashboard/plots/jobs/ads/pageload?since_s={last_s}").json()
    assert more["times"][-1] == pytest.approx(last_s + 4.0, abs=0.5)
    assert all(at > last_s for at in more["times"])
