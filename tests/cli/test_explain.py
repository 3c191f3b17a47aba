"""`trilithon explain` prints chains: what was seen, concluded and done, and what came of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner

from tests.cluster import chain
from tests.policies.latency.model import Operating, QueueCluster, limit, line
from trilithon.cli.main import app
from trilithon.control.journal import FILE, Journal
from trilithon.model.allocation import initial
from trilithon.model.mode import Mode
from trilithon.policies.latency.messages import PREDICTION

JOB = chain("words", "ads")
OTHER = chain("other", "news")
ALLOCATION = {
    "job": JOB.id,
    "generation": 2,
    "parallelism": {"count": 5},
    "weights": {},
    "placement": {},
    "batching_ms": {},
}
ASKED = [{"change": "parallelism", "job": JOB.id, "parallelism": {"count": 5}}]


def decided(journal: Journal, id_: str, time_s: float, reason: str, said: str, **more: Any) -> None:
    row = {"numbers": {}, "causes": [], "asked": [], "granted": [], "clips": [], **more}
    job, policy = row.pop("job", JOB.id), row.pop("policy", "dhalion")
    written: dict[str, Any] = {name: json.dumps(value) for name, value in row.items()}
    journal.database.insert(
        "decision",
        id=id_,
        round=int(id_.partition(":")[0]),
        time_s=time_s,
        last_s=time_s,
        job=job,
        policy=policy,
        reason=reason,
        sentence=said,
        **written,
    )


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A job that was treated once; before its outcome is known, ten alerts about something else."""
    path = tmp_path / FILE
    journal = Journal(path)
    for job in (JOB, OTHER):
        journal.adopt(job, 1, initial(job), Mode.AUTO, 0.0)
    first = f"15:{JOB.id}"
    with journal.database.transaction("round"):
        decided(
            journal,
            first,
            300.0,
            "SYMPTOM_BACK_PRESSURE",
            "Count holds its senders back for 40 % of the time.",
            numbers={"share": 0.4},
        )
        decided(journal, f"{first}:1", 300.0, "SYMPTOM_PENDING", "812 records wait.")
        decided(
            journal,
            f"{first}:2",
            300.0,
            "DIAGNOSIS_UNDER_PROVISIONED",
            "Count lacks instances.",
            causes=[first, f"{first}:1", f"14:{OTHER.id}"],
        )
        decided(
            journal,
            f"{first}:10",
            300.0,
            "SCALE_UP",
            "Count lacks instances. It gets 5.",
            causes=[f"{first}:2"],
            asked=ASKED,
            granted=ASKED,
        )
        journal.database.insert(
            "action",
            id=f"{first}:10#0",
            decision=f"{first}:10",
            job=JOB.id,
            kind="reallocate",
            body=json.dumps({"do": "reallocate", "allocation": ALLOCATION}),
            wanted_s=300.0,
            started_s=300.0,
            ended_s=301.0,
            status="done",
            code="",
            message="",
            took_s=0.25,
        )
        decided(journal, f"14:{OTHER.id}", 290.0, "SECRET", "Of another tenant.", job=OTHER.id)
        for number in range(10):
            at_s = 400.0 + 20 * number
            decided(journal, f"{20 + number}:{JOB.id}", at_s, "KEPT", f"Kept for {number} rounds.")
        decided(
            journal,
            f"40:{JOB.id}",
            800.0,
            "EVALUATED",
            "scale up for under provisioned helped.",
            causes=[f"{first}:10"],
        )
    journal.close()
    return path


def explained(journal: Path, *options: str) -> str:
    done = CliRunner().invoke(app, ["explain", "ads/words", "--journal", str(journal), *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_an_outcome_is_printed_below_all_that_it_follows_from(
    journal: Path, snapshot: SnapshotAssertion
) -> None:
    """Causes have ids, which no entry showed, and were left out beyond the limit."""
    assert explained(journal, "--limit", "1") == snapshot


def test_every_cause_that_is_named_is_an_entry_with_its_id(journal: Path) -> None:
    """The limit counts the latest decisions; what these follow from comes with them."""
    entries = json.loads(explained(journal, "--limit", "3", "-o", "json"))
    ids = [entry["id"].replace(f":{JOB.id}", "") for entry in entries]
    assert ids == ["15", "15:1", "15:2", "15:10", "28", "29", "40"]
    text = explained(journal, "--limit", "3")
    assert all(f"Z  {entry['id']}  dhalion decided" in text for entry in entries)
    # The chain comes last, since its outcome is the latest entry.
    assert text.index("Kept for 9 rounds.") < text.index("SYMPTOM_BACK_PRESSURE")


def test_decisions_about_other_jobs_are_not_shown(journal: Path) -> None:
    assert "Of another tenant." not in explained(journal, "--limit", "100")


def test_a_prediction_that_was_checked_shows_what_was_predicted_and_what_was_measured(
    tmp_path: Path,
) -> None:
    """Of the policy `latency`, after an adjustment."""
    spec = line("a", constraints=(limit(50.0, "in->a", "a"),))
    rounds = QueueCluster.of((spec, {"a": Operating(370.0)})).rounds(4)
    checked = next(decision for decision in rounds if decision.reason == PREDICTION)
    journal = Journal(tmp_path / FILE)
    journal.adopt(JOB, 1, initial(JOB), Mode.AUTO, 0.0)
    with journal.database.transaction("round"):
        decided(
            journal,
            f"3:{JOB.id}",
            15.0,
            PREDICTION,
            checked.sentence,
            numbers=dict(checked.numbers),
            policy="latency",
        )
    journal.close()
    text = explained(tmp_path / FILE)
    predicted, measured = (
        checked.numbers[f"a.{name}_ms"] for name in ("predicted_for_load", "measured_waiting")
    )
    assert (
        f"latency decided (PREDICTION_CHECKED): a with {checked.numbers['a.instances']:g}" in text
    )
    assert f" ms of waiting predicted, {measured:.2f} ms measured (" in text
    assert f"a.predicted_for_load_ms {predicted:.4g}" in text
    assert f"a.measured_waiting_ms {measured:.4g}" in text
