"""Nexmark q13, bounded side input: joins each bid with a row of a small table, as Beam's does: 500
rows, found by the auction's remainder.
"""

from trilithon import pipelines as tp
from trilithon.workloads.nexmark import BID_TYPE

ROWS = 500


@tp.source(subscribe="nexmark", startingOffsets="earliest", partitions=4)
def events():
    return f"event_type INT, bid {BID_TYPE}"


@tp.table(rows=[[key, f"side input {key}"] for key in range(ROWS)])
def side_input():
    return "key BIGINT, value STRING"


@tp.operator(parallelism={"initial": 1, "max": 4})
def bids(events):
    return events.where("event_type = 2").select(
        "bid.auction", "bid.bidder", "bid.price", "bid.dateTime", f"bid.auction % {ROWS} AS key"
    )


@tp.operator(parallelism={"initial": 1, "max": 4})
def enrich(bids):
    joined = bids.join("side_input", on="key")
    return joined.select("auction", "bidder", "price", "dateTime", "value")


@tp.sink(topic="nexmark-q13")
def out(enrich): ...


job = tp.job(
    "nexmark-q13",
    tenant="nexmark",
    priority=10,
    slo=[tp.latency(p95="200 ms"), tp.juice(at_least=0.95)],
)
