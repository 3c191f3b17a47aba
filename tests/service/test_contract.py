"""The API keeps its OpenAPI document: requests made from it get no 500 and no other answer."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.cluster import FakeCluster, chain
from tests.control.scene import ClusterClock
from tests.service.conftest import RULES
from trilithon.engines.spark.compiler import unsupported
from trilithon.errors import JobEnding
from trilithon.service.access.rates import RateLimiter
from trilithon.service.access.roles import Role
from trilithon.service.api import DOCUMENT, api
from trilithon.service.daemon import Daemon, daemon
from trilithon.service.routes.common import API
from trilithon.spec.dump import dump_job
from trilithon.workloads.topic_reader import Record

EXAMPLES = 6
JOB = chain("chain", "ads")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder: Path = tmp_path_factory.mktemp("contract")
    cluster = FakeCluster(auto_s=10.0)
    with daemon(
        cluster, RULES, folder / "daemon", clock=ClusterClock(cluster), unsupported=unsupported
    ) as running:
        running.access.limiter = RateLimiter(per_s=1e6, burst=1e6)
        running.commands.apply(JOB)
        running.read_latest = lambda topic, n, _: [Record(0, 1, 2.0, None, topic).as_data()] * n
        yield running


def operations(served: Daemon) -> Iterator[Any]:
    schema = schemathesis.openapi.from_asgi(
        f"{API}{DOCUMENT}", api(served), headers={"Host": "127.0.0.1"}
    )
    # The stream of events does not end.
    for operation in schema.exclude(path_regex="/events$").get_all_operations():
        assert isinstance(operation, Ok)
        yield operation.ok()


def aim(case: Any, served: Daemon) -> None:
    """Makes a request about things that exist: names that are made up never do."""
    with contextlib.suppress(JobEnding):
        served.commands.apply(JOB)
    real = {"tenant": "ads", "name": "chain", "place": "in", "report": "crunch"}
    real["token"] = served.access.store.create("spare", {"ads": Role.VIEWER})[0].id
    for name in case.path_parameters or {}:
        case.path_parameters[name] = real[name]
    if isinstance(case.body, dict) and "spec" in case.body:
        case.body["spec"] = dump_job(JOB)


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
def test_every_answer_is_as_the_document_says(mode: GenerationMode, served: Daemon) -> None:
    """Of valid requests and of such that the document forbids."""
    headers = {"Authorization": f"Bearer {served.token}", "Host": "127.0.0.1"}
    tried = 0
    for operation in operations(served):

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
            phases=[Phase.generate],
        )
        def answers(case: Any) -> None:
            nonlocal tried
            tried += 1
            if tried % 2:
                aim(case, served)
            case.validate_response(case.call(headers=headers), checks=CHECKS)

        try:
            answers()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # nothing of it can be wrong
    assert tried > 10 * EXAMPLES
