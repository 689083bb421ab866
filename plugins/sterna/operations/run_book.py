"""Where the run book says what to do about an error."""

from __future__ import annotations

from typing import Final

from sterna import errors
from sterna.replication.replica.held import WAITS

RUN_BOOK: Final = "docs/operations.md"
_SHARED_CARDS: Final = (
    "answertoolarge-outoftime-queuefull",
    "baddrop-dropoverlimit-keyreused",
    "badrequest-nosuchquery-notallowed",
    "badupdate-foreignfile",
    "busy-at-a-sync",
    "credentialerror-storedenied-catalogdenied",
    "databaseunreachable-databaserefused",
    "featurestorefull-and-featurestorerefused",
    "flowstopped-notonlyadded-and-what-else-stops-a-transform",
    "gap-at-changes",
    "logkept-purgenear-notread",
    "nosuchtable-nosuchview-nosuchnamespace-alreadyexists-namespacenotempty",
    "notakey-needsclassicspark-at-changes",
    "nothingtorestore-tablelives",
    "receiverunreachable-eventrefused-outletdisabled",
    "registryerror--is-bound-to-",
    "replicabroken-at-gc",
    "requirementfailed-stalebase",
    "rewound-markmoved",
    "slotlost-positionlost-needsresync",
    "snapshotgone-at-pin",
    "snapshotgone-notyethere-at-a-query",
    "storeunreachable-catalogunreachable-engineerror",
    "tablemoved-outofturn",
    "unregistereduri-on-a-table",
    "upkeepblocked-at-maintenance",
    "usageerror-serviceserror",
)
"""Anchors of cards whose headings have more than the name of one error."""


def card_link(error_name: str) -> str:
    """Return the link to an error's card in the run book, "" for what is no error of this version.

    Args:
        error_name: the class's name, as a held key has it.
    """
    if error_name != WAITS and not hasattr(errors, error_name):
        return ""
    name = error_name.lower()
    anchor = next((shared for shared in _SHARED_CARDS if name in shared.split("-")), name)
    return f"{RUN_BOOK}#{anchor}"
