"""Events over a WebSocket: a text message each, and what is told beside them as `{"control": …}`."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from sterna.events.subscription import BeginAnew, Bye, Message, Send, Subscription
from sterna.gateway.gateway import Gateway
from sterna.gateway.stream import control, counted

# RFC 6455, section 7.4.1, and IANA's registry.
_POLICY, _RESTART, _LATER = 1008, 1012, 1013
_CODES = {"token": _POLICY, "restart": _RESTART, "behind": _LATER}


async def talk(gateway: Gateway, socket: WebSocket, subscription: Subscription, first: BeginAnew | None) -> None:
    """Send until the client goes, or is sent away; what it says is passed over."""
    await socket.accept()
    sending = asyncio.create_task(_send_all(gateway, socket, subscription, first))
    leaving = asyncio.create_task(_left(socket))
    done, pending = await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if sending in done:
        # Whoever went while something was sent to him is no fault.
        with suppress(WebSocketDisconnect):
            sending.result()


async def _send_all(gateway: Gateway, socket: WebSocket, subscription: Subscription, first: BeginAnew | None) -> None:
    messages: list[Message] = [first] if first else []
    known = ""
    while True:
        await _send(gateway, socket, messages)
        passed = "" if messages else subscription.passed
        if passed not in ("", known):  # what came meanwhile wasn't for this client
            known = passed
            await socket.send_text(json.dumps({"control": "cursor", "cursor": passed}))
        messages = await subscription.next(gateway.options.heartbeat)
        if messages and isinstance(messages[-1], Bye):
            await _send(gateway, socket, messages)
            await socket.close(_CODES[messages[-1].reason], messages[-1].reason)
            return


async def _send(gateway: Gateway, socket: WebSocket, messages: list[Message]) -> None:
    counted(gateway, "websocket", messages)
    for message in messages:
        if isinstance(message, Send):
            for event in message.events:
                await socket.send_text(event.text.decode())
        else:
            name, fields = control(message)
            await socket.send_text(json.dumps({"control": name, **fields}))


async def _left(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
