"""nchan, the rival of the events: nginx's module keeps the streams, and a poller of the catalog publishes to it."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx

_EVENT_BYTES = 1_000  # an event of ours with what is around it
_LOOK_SECONDS = 0.2  # as the gateway polls
_CONF = """\
load_module {module};
pid {folder}/pid;
error_log {folder}/error.log;
daemon off;
worker_processes 1;
events {{ worker_connections {connections}; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location = /publish {{ nchan_publisher; nchan_channel_id events; }}
    location = /events {{
      nchan_subscriber eventsource;
      nchan_channel_id events;
      nchan_subscriber_first_message newest;
    }}
  }}
}}
"""


@contextmanager
def nchan(unpacked: Path, folder: Path, clients: int) -> Iterator[str]:
    """Run nginx with nchan, and yield its address.

    Args:
        unpacked: where Debian's packages `nginx` and `libnginx-mod-nchan` were unpacked to, or `/`.
        folder: for its own files.
        clients: streams that it has to bear.
    """
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    module = unpacked.resolve() / "usr/lib/nginx/modules/ngx_nchan_module.so"
    conf = _CONF.format(module=module, folder=folder, port=port, connections=2 * clients + 1_000)
    (folder / "nginx.conf").write_text(conf)
    process = subprocess.Popen([unpacked / "usr/sbin/nginx", "-p", folder, "-c", folder / "nginx.conf"])
    try:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + 10
        while True:
            with suppress(httpx.HTTPError):
                httpx.get(f"{url}/publish")
                break
            assert process.poll() is None and time.monotonic() < end, "nginx does not come up"
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(10)


@asynccontextmanager
async def publishing(url: str, branch: str) -> AsyncIterator[None]:
    """Publish each new head of a branch, as long as the block runs.

    Args:
        url: nchan's address.
        branch: the catalog's URL of the branch.
    """
    task = asyncio.create_task(_publish(url, branch))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _publish(url: str, branch: str) -> None:
    last_head = ""
    async with httpx.AsyncClient() as client:
        while True:
            head = (await client.get(branch)).json()["reference"]["hash"]
            if last_head and head != last_head:
                event = {"data": {"replica_hash": head}, "as long as ours": "."}
                event["as long as ours"] = "." * (_EVENT_BYTES - len(json.dumps(event)))
                await client.post(f"{url}/publish", content=json.dumps(event))
            last_head = head
            await asyncio.sleep(_LOOK_SECONDS)
