"""A tenant's jobs have the tenant's own principal: on a broker with SASL/PLAIN and ACLs."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from pyspark.sql import SparkSession

from tests.cluster import chain
from tests.engines.spark.conftest import until
from trilithon.engines.spark import broker as broker_module
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.background_process import free_ports
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial
from trilithon.workloads.kafka_settings import librdkafka_settings
from trilithon.workloads.topic_reader import TopicReader

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
# Whoever comes by the plain listener may do everything: the administrator, and the broker itself.
SECURED = """
listeners=PLAINTEXT://{{host}}:{{port}},TENANTS://{{host}}:{tenants},CONTROLLER://{{host}}:{{controller}}
advertised.listeners=PLAINTEXT://{{host}}:{{port}},TENANTS://{{host}}:{tenants}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,TENANTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.tenants.plain.sasl.jaas.config={plain} user_ads="of-ads" user_shop="of-shop";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""
JOBS = {tenant: chain(f"principal-{tenant}", tenant) for tenant in ("ads", "shop")}
# A job of ads that reads the topic of shop.
THIEF = chain("principal-shop", "ads")


def settings_of(tenant: str, address: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} username="{tenant}" password="{password}";',
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker whose second listener knows principals, with ACLs by prefix for two of them."""
    (port,) = free_ports(0)
    kept = [
        row
        for row in broker_module.PROPERTIES.splitlines()
        if not row.startswith(("listeners=", "advertised.listeners="))
    ]
    added = SECURED.format(tenants=port, plain=PLAIN)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(broker_module, "PROPERTIES", "\n".join(kept) + added)
        started = EmbeddedBroker.start(tmp_path_factory.mktemp("secured"))
    with started as broker:
        address = f"127.0.0.1:{port}"
        tenants = {name: settings_of(name, address, f"of-{name}") for name in JOBS}
        tenants["wrong"] = settings_of("ads", address, "guessed")
        kafka = Kafka(broker.address, {}, tenants)
        create_topics(Kafka(broker.address), list(JOBS.values()))
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        prefix = (ResourceType.TOPIC, ResourcePatternType.PREFIXED)
        bindings = [
            AclBinding(
                prefix[0],
                f"principal-{name}-",
                prefix[1],
                f"User:{name}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for name in JOBS
        ]
        for done in admin.create_acls(bindings).values():
            done.result(120)
        yield kafka


@pytest.fixture(scope="module")
def engine(
    spark: SparkSession, secured: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkEngine]:
    folder = tmp_path_factory.mktemp("engine")
    engine = SparkEngine(spark, secured, folder, tasks=lambda: max_tasks(spark), slots=20)
    yield engine
    for name in list(engine.jobs()):
        engine.cancel(name)


def records(kafka: Kafka, tenant: str, topic: str) -> list[Any]:
    own = librdkafka_settings(kafka.tenants[tenant])
    with TopicReader(own.pop("bootstrap.servers"), own) as reader:
        return [record.decoded for record in reader.latest(topic, 10)]


def test_each_tenants_job_reads_and_writes_with_its_own_principal(
    engine: SparkEngine, secured: Kafka
) -> None:
    for tenant, job in JOBS.items():
        outcome = engine.submit(job, initial(job))
        assert outcome.changed, outcome
        producer = Producer(librdkafka_settings(secured.tenants[tenant]))
        producer.produce(f"principal-{tenant}-in", json.dumps({"v": 7}))
        producer.flush(120)
    for tenant in JOBS:
        until(partial(records, secured, tenant, f"principal-{tenant}-out"))
    # A secret is in no report and no description of the engine.
    shown = repr((engine.kafka, engine.jobs(), engine.reports(), engine.capabilities()))
    assert "of-ads" not in shown


def test_kafka_refuses_a_tenant_the_topics_of_another(engine: SparkEngine, secured: Kafka) -> None:
    outcome = engine.submit(THIEF, initial(THIEF))
    assert not outcome.changed
    assert "MISSING_TOPIC" in outcome.message
    assert "principal-shop-in" in outcome.message
    with pytest.raises(Exception, match=r"(?i)authoriz|no topic"):
        records(secured, "ads", "principal-shop-out")


def test_a_wrong_password_is_refused_and_not_shown(engine: SparkEngine) -> None:
    job = chain("principal-ads", "wrong")
    outcome = engine.submit(job, initial(job))
    assert not outcome.changed
    assert "guessed" not in outcome.message


def test_settings_for_java_are_translated_for_librdkafka(tmp_path: Path) -> None:
    java = settings_of("ads", "broker:9093", 'a \\"quoted\\" one')
    java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/etc/ca.pem"}
    assert librdkafka_settings(java) == {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ads",
        "sasl.password": 'a "quoted" one',
        "ssl.ca.location": "/etc/ca.pem",
    }
    assert librdkafka_settings({"ssl.keystore.location": "x.jks"}) == {}
