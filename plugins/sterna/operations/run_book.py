"""Where the run book says what to do about an error."""

from __future__ import annotations

import os
from typing import Final

from sterna import errors
from sterna.replication.replica.held import WAITS
from sterna.runtime.failures import describe_error

RUN_BOOK: Final = "docs/operations.md"
RUN_BOOK_VARIABLE: Final = "STERNA_RUN_BOOK"
"""Names where an operator's own people read the run book, such as a page of a wiki."""
_SHARED_CARDS: Final = (
    "answertoolarge-outoftime-queuefull",
    "baddrop-dropoverlimit-keyreused",
    "badrequest-nosuchquery-notallowed",
    "badupdate-foreignfile",
    "busy-at-a-sync",
    "clockskew-at-doctor",
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
    "usageerror-registryerror-serviceserror",
)
"""Anchors of cards whose headings have more than the name of one error."""


def card_link(error_name: str) -> str:
    """Return the link to an error's card in the run book; "" where it has none, and for what is no error here.

    Args:
        error_name: the class's name, as a held key has it.
    """
    name = error_name.lower()
    shared = next((anchor for anchor in _SHARED_CARDS if name in anchor.split("-")), "")
    has_own = error_name == WAITS or _has_card(getattr(errors, error_name, None))
    return entry_link(shared or name) if shared or has_own else ""


def entry_link(anchor: str) -> str:
    """Return the link to an entry of the run book.

    Args:
        anchor: that of the entry's heading.
    """
    return f"{os.environ.get(RUN_BOOK_VARIABLE) or RUN_BOOK}#{anchor}"


def error_card(error: errors.SternaError) -> str:
    """Return the link to the card of an error, or of what it is a kind of; "" where there is none."""
    return next(filter(None, (card_link(kind.__name__) for kind in type(error).__mro__)), "")


def describe_with_card(error: errors.SternaError) -> str:
    """Return an error's class and message, and the link to its card."""
    card = error_card(error)
    return f"{describe_error(error)}{f', see {card}' if card else ''}"


def _has_card(error_class: object) -> bool:
    """Return whether a class is an error of the tree with none below it: each of those has a card."""
    if not (isinstance(error_class, type) and issubclass(error_class, errors.SternaError)):
        return False
    return all(child.__module__ != errors.__name__ for child in error_class.__subclasses__())
