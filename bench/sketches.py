"""Which sketch for latencies: ours in columns, DDSketch's library, and a t-digest.

    python -m bench.sketches

Prints the largest relative error at p50 to p99.9 over four distributions, the cost of adding and of
merging, the size, and whether the order of merging changes the result.
"""

import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from crick import TDigest
from ddsketch import DDSketch

from trilithon.measures.sketch import merge, of_values, quantile
from trilithon.model.sketches import Sketches

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
PARTS, SIZE = 50, 4000
Values = np.ndarray[tuple[int], np.dtype[np.float64]]


def distributions(random: np.random.Generator) -> dict[str, Values]:
    n = PARTS * SIZE
    stalls = np.where(random.random(n) < 0.002, random.uniform(300, 800, n), random.gamma(4, 5, n))
    return {
        "gamma (service)": random.gamma(4, 5, n),
        "lognormal (tail)": random.lognormal(3, 1, n),
        "pareto (heavy tail)": 5 * (1 + random.pareto(1.5, n)),
        "with stalls": stalls,
    }


class Ours:
    name = "trilithon"

    def make(self, values: Values) -> Any:
        return of_values(values)

    def merge(self, parts: list[Any]) -> Any:
        rows = Sketches(
            np.concatenate([[0], np.cumsum([len(p.buckets) for p in parts])]),
            np.concatenate([p.buckets for p in parts]),
            np.concatenate([p.counts for p in parts]),
            np.ones(len(parts), bool),
        )
        return merge(rows, np.zeros(len(parts), np.int64), 1)

    def quantile(self, sketch: Any, q: float) -> float:
        return float(quantile(sketch, q)[0])

    def size(self, sketch: Any) -> int:
        return int(sketch.buckets.nbytes + sketch.counts.nbytes)


class Library:
    name = "ddsketch"

    def make(self, values: Values) -> Any:
        sketch = DDSketch(relative_accuracy=0.01)
        for value in values:
            sketch.add(value)
        return sketch

    def merge(self, parts: list[Any]) -> Any:
        whole = DDSketch(relative_accuracy=0.01)
        for part in parts:
            whole.merge(part)
        return whole

    def quantile(self, sketch: Any, q: float) -> float:
        return float(sketch.get_quantile_value(q))

    def size(self, sketch: Any) -> int:
        return len(pickle.dumps(sketch))


class Digest:
    name = "t-digest (crick)"

    def make(self, values: Values) -> Any:
        digest = TDigest()
        digest.update(values)
        return digest

    def merge(self, parts: list[Any]) -> Any:
        whole = TDigest()
        whole.merge(*parts)
        return whole

    def quantile(self, sketch: Any, q: float) -> float:
        return float(sketch.quantile(q))

    def size(self, sketch: Any) -> int:
        return len(pickle.dumps(sketch))


def make_all(kind: Any, values: Values) -> list[Any]:
    return [kind.make(part) for part in np.split(values, PARTS)]


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started


def main() -> None:
    shapes = distributions(np.random.default_rng(11))
    print(f"{PARTS} parts of {SIZE:,} latencies, merged; errors are relative, at {QUANTILES}\n")
    print(f"{'sketch':<18} {'largest error':>14} {'add µs':>8} {'merge ms':>9} {'bytes':>7}  order")
    for kind in (Ours(), Library(), Digest()):
        worst = added = merged = size = 0.0
        same = True
        for values in shapes.values():
            parts, spent = timed(partial(make_all, kind, values))
            added += spent
            whole, spent = timed(partial(kind.merge, parts))
            merged += spent
            again = kind.merge(list(reversed(parts)))
            for q in QUANTILES:
                true = float(np.quantile(values, q, method="inverted_cdf"))
                found = kind.quantile(whole, q)
                worst = max(worst, abs(found - true) / true)
                same &= found == kind.quantile(again, q)
            size = max(size, kind.size(whole))
        count = PARTS * SIZE * len(shapes)
        order = "no matter" if same else "changes the result"
        print(
            f"{kind.name:<18} {worst:>13.2%} {added / count * 1e6:>9.3f}"
            f" {merged / len(shapes) * 1e3:>9.2f} {size:>7,.0f}  {order}"
        )


if __name__ == "__main__":
    main()
