"""Topics of a Kafka whose messages become rows: the part `ingest.topics` of the services file."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from sterna.config.sections.sinks import KafkaTopic
from sterna.config.sections.types import Duration, Size

TopicName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$")]
Offset = Annotated[int, Field(ge=0, lt=1 << 63)]
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


def _validate_partition(value: Any) -> Any:
    # JSON has it as text. In two spellings, such as 7 and "07", the second one would count.
    if (isinstance(value, str) and not _NUMBER.fullmatch(value)) or isinstance(value, bool | float):
        raise ValueError("expected a partition's number, such as 0")
    return value


Partition = Annotated[int, BeforeValidator(_validate_partition), Field(ge=0, lt=1 << 31)]


class SourceTopic(KafkaTopic):
    """A topic that is read in one region, each partition in a channel of its own.

    Args:
        name: names the channels. Under another name the topic is read from its beginning.
        region: where it is read, and its messages are kept until they are published.
        topic: the topic; "": as `name`.
        brokers_credential_id: the connection with login and password; None: the servers need none.
        into: the dotted key of the table that takes the rows.
        mode: `buffered`: a gateway copies the messages into the inbox, and the broker may delete them at once;
            `direct`: workers read them, and the broker keeps them until they are on `main`. A name has one mode for
            good.
        begin: where reading begins for the first time, by partition; one that isn't named begins with the oldest.
        tombstones: what a message without a value is: a dead letter, or nothing.
        every: seconds after which what was read becomes an upload.
        bytes: bytes of a partition that become an upload sooner, which is what a reader holds of each.
    """

    name: TopicName
    region: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
    topic: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{0,249}$")] = ""
    brokers_credential_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,250}$")] | None = None
    into: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128}){1,16}$")]
    mode: Literal["buffered", "direct"] = "buffered"
    begin: dict[Partition, Offset] = Field(default_factory=dict)
    tombstones: Literal["dead", "skip"] = "dead"
    every: Duration = 5
    bytes: Annotated[Size, Field(ge=1)] = 8 << 20

    @property
    def topic_name(self) -> str:
        """The topic as its servers call it."""
        return self.topic or self.name
