"""A small AMQP 1.0 receiver as a process of its own: `python -m tests.support.amqp_peer PORT FOLDER`.

What the brokers at hand don't do it does as Azure Service Bus: it announces the largest message, and refuses with the
conditions that it is told, or lets nobody send. Each message that it takes is a line of FOLDER/NAME.lines before it is
accepted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from proton import Condition, Delivery
from proton.handlers import MessagingHandler
from proton.reactor import Container


class _Peer(MessagingHandler):
    def __init__(self, port: str, folder: Path) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._port, self._folder = port, folder

    def on_start(self, event: Any) -> None:
        event.container.listen(f"127.0.0.1:{self._port}")

    def on_link_opening(self, event: Any) -> None:
        if event.link.is_receiver:
            rules, event.link.target.address = self._rules(event.link), event.link.remote_target.address
            event.link.max_message_size = rules["most"]
            if rules["denied"]:
                event.link.condition = Condition("amqp:unauthorized-access", "no right to send")
                event.link.close()
            elif not rules.get("full"):
                event.link.flow(1000)

    def on_message(self, event: Any) -> None:
        rules, table = self._rules(event.link), event.message.properties["cloudEvents:subject"]
        refusal = "amqp:unauthorized-access" if rules["denied"] else rules.get("rejects", {}).get(table)
        event.link.flow(1)
        if refusal:
            self._reject(event.delivery, refusal)
            return
        about = {"id": event.message.id, "subject": table, "data": json.loads(bytes(event.message.body))}
        with (self._folder / f"{event.link.remote_target.address}.lines").open("a") as file:
            file.write(json.dumps(about) + "\n")
        self.accept(event.delivery)

    def _reject(self, delivery: Any, condition: str) -> None:
        if condition != "released":
            delivery.local.condition = Condition(condition, "because of the test")
        delivery.update(Delivery.RELEASED if condition == "released" else Delivery.REJECTED)
        delivery.settle()

    def _rules(self, link: Any) -> dict[str, Any]:
        rules: dict[str, Any] = json.loads((self._folder / f"{link.remote_target.address}.rules").read_text())
        return rules


if __name__ == "__main__":
    Container(_Peer(sys.argv[1], Path(sys.argv[2]))).run()
