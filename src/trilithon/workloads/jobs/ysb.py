"""The Yahoo streaming benchmark: how many views the ads of each campaign get in ten seconds.

Events that are not views are dropped; views are joined with the table of ads and campaigns and
counted by campaign and window. The original writes the counts to Redis every second; here each view
writes the new count of its campaign and window.
"""

from trilithon import pipelines as tp
from trilithon.workloads.ad_events import SCHEMA, campaigns


@tp.source(subscribe="ad-events", startingOffsets="earliest", partitions=4)
def events():
    return SCHEMA


@tp.table(rows=campaigns())
def ads():
    return "ad_id STRING, campaign_id STRING"


@tp.operator(parallelism={"initial": 1, "max": 4})
def views(events):
    return events.where("event_type = 'view'").select(
        "ad_id", "timestamp_millis(event_time) AS event_time"
    )


@tp.operator(parallelism={"initial": 1, "max": 4})
def campaign(views):
    return views.join("ads", on="ad_id").select("campaign_id", "event_time")


@tp.operator(by_key={"campaign": ["campaign_id"]}, parallelism=4)
def count(campaign):
    return (
        campaign.watermark("event_time", "10 seconds")
        .group_by("campaign_id")
        .window("event_time", "10 seconds")
        .aggregate(views="count(*)")
    )


@tp.sink(topic="ad-counts", key="campaign_id")
def counts(count): ...


job = tp.job(
    "ysb",
    tenant="yahoo",
    priority=10,
    slo=[tp.latency(p95="200 ms"), tp.juice(at_least=0.95)],
)
