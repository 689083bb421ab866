"""Apache Iceberg's own `CatalogTests`, run against an Iceberg REST address.

    .venv/bin/python -m tests.catalog_tests http://127.0.0.1:8181
    .venv/bin/python -m tests.catalog_tests --nessie                  with a Nessie of this run's own
    .venv/bin/python -m tests.catalog_tests --sterna                  with sterna's own address, as it is deployed
    .venv/bin/python -m tests.catalog_tests --sterna --without-proof  where it takes files that aren't there
    .venv/bin/python -m tests.catalog_tests URI --property warehouse=eu --only testCreateNamespace --verbose

The tests drop the namespaces ns, newdb, ns1, ns2, other_ns and parent with all in them: they need a catalog of their
own. They are those of Iceberg 1.11, by the client of 1.12. The command prints each failure's first line, and how many
passed. It ends with 0 when nothing failed, and with 1 else. With sterna's own address it compares with
`exceptions.toml`: what fails and isn't there, and what is there and passes, makes it end with 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from sterna.jvm.jars import Jar
from sterna.jvm.java import find_java
from sterna.servers.jars import ICEBERG_AWS, ICEBERG_SPARK, fetch_jars, pyspark_jars
from sterna.servers.nessie import Warehouse, start_nessie
from sterna.servers.s3 import Endpoint, start_s3
from tests.catalog_tests.own_address import LOCATION, own_address

HERE: Final = Path(__file__).parent
_CLASS: Final = "tests.catalog.AddressCatalogTests"
# Servers of S3's protocol that know nothing of newer checksums store their framing as content.
_AWS_OPTIONS: Final = (
    "-Daws.requestChecksumCalculation=when_required",
    "-Daws.responseChecksumValidation=when_required",
)
# The tests of defaults and overrides look for these. Source: Iceberg's `RCKUtils`.
_TABLE_PROPERTIES: Final = {
    "table-default.default-key1": "catalog-default-key1",
    "table-default.default-key2": "catalog-default-key2",
    "table-default.override-key3": "catalog-default-key3",
    "table-override.override-key3": "catalog-override-key3",
    "table-override.override-key4": "catalog-override-key4",
}


_NESSIE_LOCATION: Final = "s3://lake/warehouse/tests"


@dataclass(frozen=True)
class Outcome:
    """How one test ended.

    Args:
        name: the test's.
        status: `passed`, `failed` or `skipped`.
        reason: why it didn't pass.
    """

    name: str
    status: str
    reason: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, and print how they ended; return the exit code."""
    options = _parser().parse_args(arguments)
    if [bool(options.uri), options.nessie, options.sterna].count(True) != 1:
        _parser().error("one of a URI, --nessie and --sterna")
    with ExitStack() as stack:
        outcomes = _run(stack, _settings(stack, options), options.only)
    for outcome in outcomes:
        if outcome.status != "passed":
            lines = outcome.reason.splitlines() if options.verbose else [(outcome.reason.splitlines() or [""])[0][:160]]
            print(f"{outcome.status} {outcome.name}: ", *lines, sep="\n    " if options.verbose else "")
    counts = {
        status: sum(outcome.status == status for outcome in outcomes) for status in ("passed", "failed", "skipped")
    }
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    exceptions = read_exceptions("deployed" if options.proof else "without-proof") if options.sterna else {}
    differences = unexpected(outcomes, exceptions)
    print(*differences, sep="\n", end="\n" if differences else "")
    return 0 if outcomes and not differences else 1


def read_exceptions(way: str) -> dict[str, str]:
    """Return why tests fail at sterna's own address, by their names.

    Args:
        way: how it is run, `deployed` or `without-proof`.
    """
    reasons: Mapping[str, Mapping[str, Any]] = tomllib.loads((HERE / "exceptions.toml").read_text())[way]
    return {name: group["reason"] for group in reasons.values() for name in group["tests"]}


def unexpected(outcomes: Sequence[Outcome], exceptions: Mapping[str, str]) -> list[str]:
    """Return in words what failed and is no exception, and which exceptions passed.

    Args:
        exceptions: why tests fail, by their names.
    """
    return [
        *(f"unexpected: {one.name}" for one in outcomes if one.status == "failed" and one.name not in exceptions),
        *(f"passes by now: {one.name}" for one in outcomes if one.status == "passed" and one.name in exceptions),
    ]


def _settings(stack: ExitStack, options: argparse.Namespace) -> dict[str, str]:
    """Start the address where none is named, and return Java's system properties."""
    properties = dict(text.split("=", 1) for text in options.property)
    location = options.location
    if options.nessie:
        properties = stack.enter_context(_nessie()) | properties
        location = location or _NESSIE_LOCATION
    elif options.sterna:
        properties = stack.enter_context(_sterna(proof=options.proof)) | properties
        location = location or LOCATION
    else:
        properties["uri"] = options.uri
    switches = {f"catalog-tests-lacks-{name}": "true" for name in options.lacks}
    switches |= {"catalog-tests-location": location} if location else {}
    return {f"catalog-tests.{name}": text for name, text in (_TABLE_PROPERTIES | properties).items()} | switches


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.catalog_tests", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("uri", nargs="?", help="the address, without /v1")
    parser.add_argument("--nessie", action="store_true", help="start a Nessie, and test its Iceberg REST")
    parser.add_argument("--sterna", action="store_true", help="start sterna's own address, and test it")
    parser.add_argument(
        "--without-proof",
        dest="proof",
        action="store_false",
        help="sterna's own address takes files that aren't there: a mode for this alone",
    )
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="of the client's catalog")
    parser.add_argument("--location", help="below which tests place tables; by default file:/tmp")
    parser.add_argument(
        "--lacks",
        action="append",
        default=[],
        choices=("dots", "slashes", "retries"),
        help="what the address hasn't: names with dots or slashes, commits that it tries again by itself",
    )
    parser.add_argument("--only", action="append", default=[], metavar="TEST", help="the name of a test's method")
    parser.add_argument("--verbose", action="store_true", help="print whole stack traces")
    return parser


@contextmanager
def _nessie() -> Iterator[dict[str, str]]:
    """Start a Nessie and an S3 endpoint; yield the client's properties."""
    with TemporaryDirectory(prefix="catalog-tests-") as name, ExitStack() as stack:
        work = Path(name)
        endpoint = start_s3(work, "eu", ["lake"], "access", "secret-key")
        stack.callback(endpoint.stop)
        nessie = start_nessie(work, warehouses=[Warehouse("eu", "lake", "warehouse", endpoint)])
        stack.callback(nessie.stop)
        yield {"uri": f"{nessie.iceberg_uri}/main", "warehouse": "eu", **_store(endpoint)}


@contextmanager
def _sterna(*, proof: bool) -> Iterator[dict[str, str]]:
    """Start sterna's own address; yield the client's properties."""
    with TemporaryDirectory(prefix="catalog-tests-") as name, own_address(Path(name), proof=proof) as (uri, endpoint):
        yield {"uri": uri, **_store(endpoint)}


def _store(endpoint: Endpoint) -> dict[str, str]:
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": endpoint.url,
        "s3.path-style-access": "true",
        "s3.access-key-id": endpoint.access_key,
        "s3.secret-access-key": endpoint.secret_key,
        "client.region": endpoint.region,
    }


def _jars() -> list[Path]:
    lines = [line.split() for line in (HERE / "jars.lock").read_text().splitlines() if not line.startswith("#")]
    pinned = [
        Jar(group, name, version, int(size), digest, *more) for group, name, version, size, digest, *more in lines
    ]
    return fetch_jars([ICEBERG_SPARK, ICEBERG_AWS, *pinned])


def _run(stack: ExitStack, properties: dict[str, str], only: Sequence[str]) -> list[Outcome]:
    reports = stack.enter_context(TemporaryDirectory(prefix="catalog-tests-"))
    gateway = _start_java(stack)
    jvm: Any = gateway.jvm
    for name, text in properties.items():
        jvm.System.setProperty(name, text)
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook((HERE / "AddressCatalogTests.java").read_text())
    tests = compiler.getClassLoader().loadClass(_CLASS)
    _execute(gateway, tests, only, reports)
    return [outcome for path in sorted(Path(reports).glob("TEST-*.xml")) for outcome in _outcomes(path)]


def _start_java(stack: ExitStack) -> JavaGateway:
    port, token = launch_gateway(
        jarpath=str(next(path for path in pyspark_jars() if path.name.startswith("py4j-"))),
        classpath=os.pathsep.join(map(str, [*_jars(), *pyspark_jars()])),
        javaopts=["-Xmx1g", *_AWS_OPTIONS],
        java_path=str(find_java().executable),
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=sys.stderr,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    stack.callback(gateway.shutdown)
    return gateway


def _execute(gateway: JavaGateway, tests: Any, only: Sequence[str], reports: str) -> None:
    jvm: Any = gateway.jvm
    select = jvm.org.junit.platform.engine.discovery.DiscoverySelectors
    selectors = jvm.java.util.ArrayList()
    for selector in [select.selectMethod(tests, name) for name in only] or [select.selectClass(tests)]:
        selectors.add(selector)
    request = jvm.org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder.request()
    request.selectors(selectors)
    listener = jvm.org.junit.platform.reporting.legacy.xml.LegacyXmlReportGeneratingListener(
        jvm.java.io.File(reports).toPath(), jvm.java.io.PrintWriter(jvm.System.err)
    )
    listeners = gateway.new_array(jvm.org.junit.platform.launcher.TestExecutionListener, 1)
    listeners[0] = listener
    jvm.org.junit.platform.launcher.core.LauncherFactory.create().execute(request.build(), listeners)


def _outcomes(path: Path) -> Iterator[Outcome]:
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        faults = [*case.findall("failure"), *case.findall("error")]
        skipped = case.findall("skipped")
        status = "failed" if faults else "skipped" if skipped else "passed"
        yield Outcome(case.get("name", ""), status, "".join(part.text or "" for part in (*faults, *skipped)))


if __name__ == "__main__":
    sys.exit(main())
