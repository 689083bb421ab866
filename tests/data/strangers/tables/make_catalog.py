"""An Iceberg REST catalog over PyIceberg's SqlCatalog, which keeps every snapshot; Nessie's keeps the newest alone.

Enough of the protocol for DuckDB: namespaces, tables, commits. Run: make_catalog.py PORT (stops with its parent).
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

CATALOG = SqlCatalog(
    "strangers",
    uri="sqlite:///:memory:",
    warehouse="s3://us-lake/strangers",
    **{
        "s3.endpoint": os.environ["S3_ENDPOINT"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    },
)
STAGED: dict[tuple[str, str], Any] = {}


def loaded(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }


def create(namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    spec = PartitionSpec.model_validate({"spec-id": 0, "fields": [], **(body.get("partition-spec") or {})})
    make = CATALOG._create_staged_table if body.get("stage-create") else CATALOG.create_table
    table = make(
        f"{namespace}.{body['name']}",
        Schema.model_validate(body["schema"]),
        location=f"s3://us-lake/strangers/{body['name']}",
        partition_spec=spec,
        properties={**body.get("properties", {}), "format-version": os.environ.get("FORMAT_VERSION", "2")},
    )
    STAGED[namespace, body["name"]] = table
    return loaded(table)


def commit(namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
    identifier = {"namespace": [namespace], "name": name}
    request = CommitTableRequest.model_validate({**body, "identifier": identifier})
    CATALOG.commit_table(
        STAGED.pop((namespace, name), None) or CATALOG.load_table((namespace, name)),
        request.requirements,
        request.updates,
    )
    return loaded(CATALOG.load_table((namespace, name)))


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.answer(self.read())

    def do_GET(self) -> None:
        self.answer(self.read())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match self.path.split("?")[0].strip("/").split("/")[1:]:
            case ["namespaces"]:
                CATALOG.create_namespace_if_not_exists(tuple(body["namespace"]))
                self.answer({"namespace": body["namespace"], "properties": {}})
            case ["namespaces", namespace, "tables"]:
                self.answer(create(namespace, body))
            case ["namespaces", namespace, "tables", name]:
                self.answer(commit(namespace, name, body))
            case ["transactions", "commit"]:
                for change in body["table-changes"]:
                    commit(change["identifier"]["namespace"][0], change["identifier"]["name"], change)
                self.answer({})
            case other:
                self.answer({"error": {"message": f"no {other}", "type": "NoSuch", "code": 404}}, 404)

    def read(self) -> dict[str, Any] | None:
        match self.path.split("?")[0].strip("/").split("/")[1:]:
            case ["config"]:
                return {"defaults": {}, "overrides": {}}
            case ["namespaces"]:
                return {"namespaces": [list(name) for name in CATALOG.list_namespaces()]}
            case ["namespaces", namespace]:
                return {"namespace": [namespace], "properties": {}} if CATALOG.namespace_exists(namespace) else None
            case ["namespaces", namespace, "tables"]:
                names = CATALOG.list_tables(namespace)
                return {"identifiers": [{"namespace": [name[0]], "name": name[1]} for name in names]}
            case ["namespaces", namespace, "tables", name]:
                try:
                    return loaded(CATALOG.load_table((namespace, name)))
                except NoSuchTableError:
                    return None
        return None

    def answer(self, body: dict[str, Any] | None, status: int = 200) -> None:
        if body is None:
            body, status = {"error": {"message": "it is not there", "type": "NoSuchTableException", "code": 404}}, 404
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
