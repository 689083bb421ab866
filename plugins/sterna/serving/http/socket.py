"""Events over a WebSocket: a text message each, and control messages as `{"control": …}`."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from sterna.notifications.subscriptions.subscription import (
    CloseMessage,
    EventsMessage,
    Message,
    ResyncMessage,
    Subscription,
)
from sterna.serving.http.context import Gateway
from sterna.serving.http.stream import control_message, count_messages

# RFC 6455, section 7.4.1, and IANA's registry.
_POLICY, _RESTART, _LATER = 1008, 1012, 1013
_CODES = {"token": _POLICY, "restart": _RESTART, "behind": _LATER}


async def serve_socket(
    gateway: Gateway, socket: WebSocket, subscription: Subscription, resync: ResyncMessage | None
) -> None:
    """Send until the client disconnects or the subscription closes; what the client sends is ignored."""
    await socket.accept()
    sending = asyncio.create_task(_send_all(gateway, socket, subscription, resync))
    leaving = asyncio.create_task(_wait_for_disconnect(socket))
    done, pending = await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if sending in done:
        # A client that disconnects during a send is no error.
        with suppress(WebSocketDisconnect):
            sending.result()


async def _send_all(
    gateway: Gateway, socket: WebSocket, subscription: Subscription, resync: ResyncMessage | None
) -> None:
    messages: list[Message] = [resync] if resync else []
    sent_cursor = ""
    while True:
        await _send(gateway, socket, messages)
        cursor = "" if messages else subscription.caught_up_cursor
        if cursor not in ("", sent_cursor):  # what came meanwhile wasn't for this client
            sent_cursor = cursor
            await socket.send_text(json.dumps({"control": "cursor", "cursor": cursor}))
        messages = await subscription.next_messages(gateway.options.heartbeat)
        if messages and isinstance(messages[-1], CloseMessage):
            await _send(gateway, socket, messages)
            await socket.close(_CODES[messages[-1].reason], messages[-1].reason)
            return


async def _send(gateway: Gateway, socket: WebSocket, messages: list[Message]) -> None:
    count_messages(gateway, "websocket", messages)
    for message in messages:
        if isinstance(message, EventsMessage):
            for event in message.events:
                await socket.send_text(event.text.decode())
        else:
            name, fields = control_message(message)
            await socket.send_text(json.dumps({"control": name, **fields}))


async def _wait_for_disconnect(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
