"""Page views with the section of the site and the offer that belongs to it, as a job in Python."""

from trilithon import pipelines as tp

SECTIONS = ("books", "music", "games")


@tp.source(subscribe="views", startingOffsets="latest", partitions=2)
def views():
    return "user STRING, url STRING, at TIMESTAMP"


# Rows can be computed: this is Python.
@tp.table(rows=[[f"site-{i}.example", SECTIONS[i % 3]] for i in range(30)])
def sites():
    return "host STRING, section STRING"


@tp.operator(parallelism={"initial": 1, "max": 4})
def parse(views):
    return views.where("url IS NOT NULL").select("user", "parse_url(url, 'HOST') AS host", "at")


@tp.operator(parallelism={"initial": 2, "max": 4})
def section(parse):
    joined = parse.join("sites", on="host", how="left")
    return joined.select("user", "coalesce(section, 'other') AS section", "at")


@tp.operator(by_key={"section": ["user"]}, parallelism={"initial": 1, "max": 4})
def offer(section):
    return section.select("user", "section", "at", "abs(hash(user, section)) % 10 AS offer")


@tp.sink(topic="offers")
def offers(offer): ...


job = tp.job("offers", tenant="shop", priority=3, slo=[tp.latency(p95="250 ms")])
