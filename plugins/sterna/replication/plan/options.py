"""The options of one sync."""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

if TYPE_CHECKING:
    from sterna.config.registry.model import Region

T = TypeVar("T")
_BATCH_SIZES: Final = "Size of batches"


@dataclass(frozen=True)
class OptionForm:
    """How a form offers an option, as Airflow's for starting a run does.

    Args:
        title: its label.
        description: what it does, in Markdown.
        section: the group that it stands in; "": above all groups.
        choices: what it may be; (): whatever its type allows, and numbers from 1 on.
    """

    title: str
    description: str | None = None
    section: str = ""
    choices: tuple[str, ...] = ()


def option(default: T, *, name: str = "", form: OptionForm | None = None) -> T:
    """Declare an option of a sync that has a form, or another name in Airflow; for others a plain default is enough.

    Args:
        default: its default.
        name: what Airflow calls it, in `options` of operators and parameters of runs; "": as the field.
        form: how a form offers it; None: no form does.
    """
    declared: T = field(default=default, metadata={"name": name, "form": form})
    return declared


def option_name(option: Field[Any]) -> str:
    """Return what Airflow calls an option."""
    name: str = option.metadata.get("name", "")
    return name or option.name


def option_form(option: Field[Any]) -> OptionForm | None:
    """Return how a form offers an option."""
    form: OptionForm | None = option.metadata.get("form")
    return form


@dataclass(frozen=True)
class SyncOptions:
    """The options of one sync.

    Args:
        tables: only these key names (patterns as in a policy), as if nothing else had changed; empty: all. The
            watermark stays.
        full: compare every key of `main`, not only those that changed since the watermark.
        restore_branch: first put back what others changed on the replica branch, and then compare every key.
        reset_watermark_to: the commit of `main` that an operator accepts, though `main` has left the watermark; ""
            for none.
        generation: the localized files of the tables asked for are to be of a metadata version with this count of
            rewrites at least (`sterna.config.registry.fingerprint`); every key is compared then. 0: they stay as they
            are.
        bytes_per_batch: how many bytes one copy batch should have.
        files_per_batch: how many files one copy batch should have.
        seed_group: how many tables a first seed publishes at once.
        lane: `small`: leave what is large to the large lane, and publish the rest. `large`: copy what is in transit,
            and publish nothing. `all`: one plan takes everything; a sync runs one lane after the other.
    """

    tables: tuple[str, ...] = option(
        (),
        form=OptionForm("Tables", "Only these: keys, or patterns with `*` (one name) and `**` (several). Empty: all."),
    )
    full: bool = option(
        False,
        name="everything",
        form=OptionForm("Compare everything", "Compare every table, not only those that changed."),
    )
    restore_branch: bool = option(
        False,
        name="reassert",
        form=OptionForm(
            "Restore the branch",
            "Revert foreign commits on the replica branch; the log of `plan` names them. Not in a dry run.",
        ),
    )
    reset_watermark_to: str = option("", name="reseed_from")
    generation: int = 0
    bytes_per_batch: int = option(4 * 1024**3, form=OptionForm("Bytes per copy batch", section=_BATCH_SIZES))
    files_per_batch: int = option(5_000, form=OptionForm("Files per copy batch", section=_BATCH_SIZES))
    seed_group: int = option(50, form=OptionForm("Tables published at once by a first seed", section=_BATCH_SIZES))
    lane: Literal["all", "small", "large"] = option(
        "all",
        form=OptionForm(
            "Lane",
            "`small` leaves large copies to the DAG for them; `all` takes everything in this run.",
            choices=("all", "small"),
        ),
    )

    def defers_large(self, region: Region) -> bool:
        """Whether a plan leaves large copies to the large lane."""
        return self.lane == "small" and region.bulk_copy_threshold > 0
