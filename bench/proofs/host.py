"""The host of a proof as a separate process: the engine with one job, behind its socket.

python -m bench.proofs.host FOLDER KAFKA SOURCE-TOPIC SINK-TOPIC
"""

import signal
import sys
from pathlib import Path

from bench.proofs.chain import line
from trilithon.contract.engine import Status
from trilithon.engines.host import Host
from trilithon.engines.spark.application import Setup, application
from trilithon.model.allocation import initial

NAME = "served"
JOB = f"bench/{NAME}"
TASKS = 8
INSTANCES = 4


def socket_in(folder: Path) -> Path:
    return folder / "host.sock"


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder, kafka, source, target = Path(sys.argv[1]), *sys.argv[2:5]
    job = line(NAME, {"a": "wait(10) >= 0"}, TASKS, (source, target))
    setup = Setup("local[16]", folder, slots=TASKS, kafka=kafka)
    with application(setup) as engine:
        outcome = engine.submit(job, initial(job).rescaled({"a": INSTANCES}))
        assert outcome.status is Status.DONE, outcome
        Host(engine, socket_in(folder)).serve()


if __name__ == "__main__":
    main()
