"""The section `ingest`: what is taken, and what is refused with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sterna.config.sections.ingest import (
    CloseRules,
    Ingest,
    IngestRegion,
    IngestTable,
    Tenant,
    TenantLimits,
    TrackerDatabase,
)
from sterna.config.sections.load import parse_services
from sterna.errors import ServicesError

WHOLE = """\
ingest:
  regions:
    eu: {inbox: s3://lake-eu/inbox/, spark: "local[2]", database: {credential_id: ingest_eu}}
  tenants:
    acme: {namespaces: [acme], limits: {backlog: 10GiB, age: 10m, file: 1GiB}}
    zeta: {namespaces: [zeta.raw, zeta.more], roles: [zeta-writers]}
  tables:
    - match: acme.*
      create: auto
      evolve: add
      rules: {files: 500, bytes: 128MiB, age: 30s, late_age: 1h}
      audit: ["count(*) > 0", "min(amount) >= 0"]
      max_bad: 100
    - {match: [zeta.**]}
"""
TOPIC = "{name: clicks, region: eu, servers: [k:9093], into: acme.t, begin: {0: 5}}"


def read(text: str) -> Ingest:
    section = parse_services(text, "s.yaml").ingest
    assert section is not None
    return section


def test_the_section_is_read() -> None:
    section = read(WHOLE)
    assert section.regions["eu"].inbox == "s3://lake-eu/inbox"
    assert section.tables[0].match == ["acme.*"] and section.tables[0].rules.late_age == 3600
    assert section.tables[1].create == "declared" and section.tables[1].evolve == "none"
    assert section.tenant_of("acme.orders") == "acme" == section.tenant_of("acme.sub.orders")
    assert [section.tenant_of(table) for table in ("acme", "acmex.a", "zeta.a", "other.t")] == [None] * 4
    (topic,) = read(WHOLE + f"  topics: [{TOPIC}]\n").topics
    assert (topic.topic_name, topic.begin, topic.tls) == ("clicks", {0: 5}, True)
    assert section.tenant_of("zeta.raw.clicks") == "zeta"
    assert section.roles_of("acme") == {"tenant:acme"} and section.roles_of("zeta") == {"zeta-writers"}


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ("s3://lake-eu/inbox/", "s3://lake-eu/../inbox", 3, "ingest.regions.eu.inbox"),
        ("s3://lake-eu/inbox/", "s3://me:secret@lake-eu/inbox", 3, "ingest.regions.eu.inbox"),
        ("s3://lake-eu/inbox/", "lake-eu/inbox", 3, "ingest.regions.eu.inbox"),
        ("credential_id: ingest_eu", "name: x", 3, "ingest.regions.eu.database.credential_id"),
        ("credential_id: ingest_eu", "credential_id: a, hosts: [db]", 3, "ingest.regions.eu.database.hosts"),
        ("10GiB", "10GB", 5, "ingest.tenants.acme.limits.backlog"),
        ("namespaces: [acme]", "namespaces: []", 5, "ingest.tenants.acme.namespaces"),
        ("namespaces: [acme]", "namespaces: [a-b]", 5, "ingest.tenants.acme.namespaces[0]"),
        ("namespaces: [acme]", "namespaces: [zeta]", 4, "ingest.tenants"),
        ("    acme:", "    Ac.me:", 4, "ingest.tenants"),
        ("s3://lake-eu/inbox/", '"s3://lake-eu/in\\tbox"', 3, "ingest.regions.eu.inbox"),
        ("create: auto", "create: always", 9, "ingest.tables[0].create"),
        ("age: 30s", "age: 0s", 11, "ingest.tables[0].rules.age"),
        ("max_bad: 100", "max_bad: -1", 13, "ingest.tables[0].max_bad"),
        ("max_bad: 100", "columns: 0", 13, "ingest.tables[0].columns"),
        ("10GiB", "10GiB, footer_memory: 1MiB", 5, "ingest.tenants.acme.limits.footer_memory"),
        ("10GiB", "10GiB, footer_time: 0s", 5, "ingest.tenants.acme.limits.footer_time"),
        ("  tables:", f"  topics: [{TOPIC[:-1]}, bytes: 8}}]\n  tables:", 7, "ingest.topics[0].bytes"),
        ("  tables:", f"  topics: [{TOPIC}, {TOPIC}]\n  tables:", 7, "ingest.topics"),
        ("  tables:", f"  topics: [{TOPIC.replace('eu', 'us')}]\n  tables:", 7, "ingest.topics"),
        ("  tables:", f"  topics: [{TOPIC.replace('clicks', 'cl.icks')}]\n  tables:", 7, "ingest.topics[0].name"),
        ("  tables:", f"  topics: [{TOPIC.replace(':9093', '')}]\n  tables:", 7, "ingest.topics[0].servers"),
        (
            "  tables:",
            f"  topics: [{TOPIC.replace('0: 5', '0: 5, 0x0: 6')}]\n  tables:",
            7,
            "ingest.topics[0].begin.0x0",
        ),
        (
            "  tables:",
            f"  topics: [{TOPIC.replace('0: 5', chr(34) + '00' + chr(34) + ': 5, 0: 6')}]\n  tables:",
            7,
            "ingest.topics[0].begin.00",
        ),
        ("  tables:", f"  topics: [{TOPIC.replace('0: 5', 'false: 5')}]\n  tables:", 7, "ingest.topics[0].begin[0]"),
        ("    zeta:", "    acme:", 6, "ingest.tenants.acme"),
        ("    eu:", "    eu: {}\n    eu:", 4, "ingest.regions.eu"),
        ("  tables:", "  topics: [{name: clicks}]\n  tables:", 7, "ingest.topics[0].into"),
        ("  tables:", "  cdc: {sources: []}\n  tables:", 7, "ingest.cdc"),
        ("audit: [", "audits: [", 12, "ingest.tables[0].audits"),
    ],
)
def test_a_fault_is_named_with_its_line(old: str, new: str, line: int, field: str) -> None:
    assert old in WHOLE
    with pytest.raises(ServicesError) as raised:
        parse_services(WHOLE.replace(old, new, 1), "s.yaml")
    assert "secret" not in str(raised.value)
    assert [message for message in str(raised.value).splitlines() if message.startswith(f"s.yaml:{line}: {field}: ")]


@pytest.mark.parametrize("missing", ["regions", "tenants", "tables"])
def test_each_part_is_needed(missing: str) -> None:
    with pytest.raises(ServicesError, match=f"ingest.{missing}"):
        parse_services(WHOLE.replace(f"  {missing}:", "  features:", 1), "s.yaml")


def test_the_document_has_each_setting_and_its_examples_are_read() -> None:
    folder = Path(__file__).parents[4] / "docs"
    document, overview = (folder / "ingest.md").read_text(), (folder / "services.md").read_text()
    (example,) = re.findall(r"sterna_services.yaml <<END\n(.*?)^   END", document, re.DOTALL | re.MULTILINE)
    example = example.replace("$PGHOST:$PGPORT", "127.0.0.1:5432")  # as the shell does
    assert read(re.sub("^   ", "", example, flags=re.MULTILINE)).tenant_of("acme.events") == "acme"
    (short,) = re.findall(r"^```\n(ingest:.*?)^```", overview, re.DOTALL | re.MULTILINE)
    assert read(short).tables[0].max_bad == 100
    documented = set(re.findall(r"^\| `([a-z_<>.\[\]]+)` \|", document, re.MULTILINE))
    wished = {f"regions.<region>.{name}" for name in IngestRegion.model_fields}
    wished |= {f"tenants.<name>.{name}" for name in Tenant.model_fields}
    wished |= {f"tables[].{name}" for name in IngestTable.model_fields}
    for model in (TrackerDatabase, TenantLimits, CloseRules):
        wished |= set(model.model_fields)
    assert wished - documented == set()


def test_what_others_put_there_for_ingestion_is_no_tables_file_either() -> None:
    listed = ', listed: [{prefix: "s3://lake-eu/partner/", table: acme.orders}]}}'
    text = WHOLE.replace("{credential_id: ingest_eu}}", "{credential_id: ingest_eu}" + listed[:-1])
    assert parse_services(text, "s.yaml").inbox_prefixes == ["s3://lake-eu/inbox", "s3://lake-eu/partner"]
