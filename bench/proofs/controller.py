"""The controller of a proof: attaches to the host, reads reports and rescales until it is killed.

python -m bench.proofs.controller SOCKET JOB
"""

import sys
import time
from pathlib import Path

from trilithon.contract.engine import Reallocate, Status
from trilithon.engines.remote import RemoteEngine

PERIOD_S = 0.2


def main() -> None:
    engine = RemoteEngine(Path(sys.argv[1]))
    allocation = engine.jobs()[sys.argv[2]].allocation
    print(f"attached at generation {allocation.generation}", flush=True)
    while True:
        engine.reports()
        allocation = allocation.rescaled({"a": 4 + allocation.generation % 3}).next_generation()
        assert engine.apply(Reallocate(allocation)).status is Status.DONE
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main()
