"""Measures how long it takes to refuse hostile job files and to read a valid one.

    python -m bench.reader

Prints the time and the peak memory per file; refusing takes at most 100 ms on an idle machine.
"""

import time
import tracemalloc

from tests.spec.test_job_builder import GOOD
from tests.spec.test_yaml_reader import HOSTILE
from trilithon.errors import InvalidJob
from trilithon.spec.job_file import parse_job
from trilithon.spec.sql_expressions import parse_expression


def attempt(text: str) -> str:
    parse_expression.cache_clear()
    try:
        parse_job(text)
    except InvalidJob as error:
        return error.problems[0].code
    return "read"


def main() -> None:
    attempt(GOOD)  # warm-up: imports and caches are not measured
    print(f"{'file':<24} {'KiB':>6} {'ms':>8} {'peak MiB':>9}  result")
    for name, text in {"a valid job": GOOD, **HOSTILE}.items():
        times_s = []
        for _ in range(3):
            started = time.perf_counter()
            result = attempt(text)
            times_s.append(time.perf_counter() - started)
        tracemalloc.start()
        attempt(text)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        size = len(text) / 1024
        print(f"{name:<24} {size:>6.0f} {min(times_s) * 1e3:>8.1f} {peak / 2**20:>9.1f}  {result}")


if __name__ == "__main__":
    main()
