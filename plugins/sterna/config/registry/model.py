"""The content of storage_registry.yaml: regions, locations and policies (docs/registry.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import combinations
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from sterna.config.limits import Limits
from sterna.config.registry.bandwidth import parse_bandwidth
from sterna.config.registry.policy import (
    DEFAULT_POLICY,
    AdmissionPolicy,
    History,
    Policy,
    Residency,
    ViewCatalogs,
    matching_pattern,
)
from sterna.config.registry.remote_types import (
    ALIASES,
    STORE_TYPES,
    TYPE_BY_SCHEME,
    RemoteType,
    invalid_options,
    login_options,
    unknown_options,
)
from sterna.config.registry.store_type import StoreType
from sterna.config.registry.types import BranchName, CredentialId, Host, HttpUri, Identifier, Name, SparkMaster, Uri
from sterna.config.yaml import Fault, Faults, FieldPath, StrictModel, case_colliding_credentials

SOURCE_BRANCH = "main"


class CatalogDatabase(StrictModel):
    """The Postgres behind a region's own Nessie, where every region has one.

    Args:
        hosts: `host:port` of its servers; with several, the one that accepts writes is taken.
        name: the database.
        role: the login of the region's Nessie servers; its right to write `refs2` makes this region the primary.
        credential_id: connection whose login may read the term; for operators a superuser's.
        replication_hosts: the same servers as other regions' Postgres reach them; default: `hosts`.
        replication_credential_id: the login by which other regions subscribe; default: `credential_id`.
        sslmode: as in libpq.
        look_timeout: seconds for reading it, connecting included; one that takes longer counts as unreachable.
        work_timeout: seconds for a statement of a command (promote, rejoin, resync).
    """

    hosts: list[Host] = Field(min_length=1)
    name: Identifier = "nessie"
    role: Identifier = "nessie"
    credential_id: CredentialId
    replication_hosts: list[Host] = Field(default_factory=list)
    replication_credential_id: CredentialId | None = None
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    look_timeout: float = Field(default=10.0, gt=0)
    work_timeout: float = Field(default=300.0, gt=0)


class CatalogAddress(StrictModel):
    """Where a region reads the catalog and where it commits; the same server in the small.

    Args:
        read: Nessie's API v2 base URI that this region's engines read; it plans from it, too.
        write: the one that accepts commits; default: the same as `read`. With `database`: this region's own, while it
            is the primary.
        credential_id: connection with user and password, or a token alone; none: no authentication.
        database: the Postgres behind `read`; none: the regions share one catalog. Else their catalogs are copies of one
            primary's: all regions have one, or none.
    """

    read: HttpUri
    write: HttpUri = ""
    credential_id: CredentialId | None = None
    database: CatalogDatabase | None = None

    @model_validator(mode="after")
    def _default_write(self) -> CatalogAddress:
        if not self.write:
            object.__setattr__(self, "write", self.read)
        return self


class Region(StrictModel):
    """One region: its replica branch, where it keeps what it copies, its catalog and its Spark.

    Args:
        name: as in `--region`.
        replica_branch: the region's replica branch; default: `main_replica_<name>`, with `_` for `-`.
        replica_root: the URI prefix of this region's copies; inside one of the region's own locations.
        catalog: where Nessie is.
        spark: localizes, lists files, reads tables; a master (`local[2]`, `spark://…`, `yarn`, `k8s://…`) or a URL of
            Spark Connect (`sc://host:15002`).
        localize: where a sync localizes; `here` is in the process or Airflow task that runs the stage, `auto` means
            here where there is little to do, or where a plan reads the file anyway.
        limits: what one table's files may cost; default: far above honest tables.
        bulk_copy_threshold: bytes to copy that make tables large; tables that move together and lack more than this are
            in transit, where the large lane copies them and others are published meanwhile. 0: no lanes.
        verbatim_copies: keep verbatim copies of other regions' metadata; this region's REST address then takes commits
            to their tables while their stores are down.
    """

    name: Name
    replica_branch: BranchName = ""
    replica_root: Uri
    catalog: CatalogAddress
    spark: SparkMaster = "local[*]"
    localize: Literal["auto", "spark", "here"] = "auto"
    limits: Limits = Limits()
    bulk_copy_threshold: Annotated[int, Field(ge=0)] = 1 << 30
    verbatim_copies: bool = False

    @model_validator(mode="after")
    def _default_branch(self) -> Region:
        if not self.replica_branch:
            object.__setattr__(self, "replica_branch", f"main_replica_{self.name.replace('-', '_')}")
        if self.replica_branch == SOURCE_BRANCH:
            raise ValueError(f"replica_branch can't be {SOURCE_BRANCH!r}: sterna never writes there")
        return self


class Remote(StrictModel):
    """How rclone and the FileIO reach a location's store; secrets come from `credential_id`, never from here.

    Args:
        type: rclone's name of the backend.
        options: the backend's options by rclone's names; those that rclone doesn't have are refused.
        name: copy with this remote of an existing rclone.conf; none: sterna makes the remote. Type and options then
            describe the store to the FileIO.
        config: path of that rclone.conf, with `name` alone; default: rclone's own.
    """

    type: RemoteType
    options: dict[str, str] = Field(default_factory=dict)
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$")] | None = None
    config: str | None = None

    @model_validator(mode="after")
    def _validate_options(self) -> Remote:
        faults = [Fault(("options", option), message) for option, message in invalid_options(self.options)]
        if self.config is not None and self.name is None:
            faults.append(Fault(("config",), "it is for a remote of that file: name it, or remove this"))
        if faults:
            raise Faults(faults)
        return self


class Location(StrictModel):
    """A URI prefix, its region, and how to reach it.

    Args:
        id: a name as a region's, **bound for ever**; replica URIs contain it.
        prefix: URI prefix, matched by whole path segments.
        region: name of the region of its storage.
        remote: how to reach it.
        credential_id: connection with the store's keys; none: what the machine provides.
        egress_per_gb: price of reading a GB from another region; by that region's name or `*`, of 1e9 bytes; default:
            0.
        bandwidth: limit on what each other region reads from here; by all its processes together, a rate such as `20M`,
            or a timetable with its time zone, such as `08:00,20M 19:00,off Europe/Berlin`; default: no limit.
        transfers: files copied from here at once, per batch.
        checkers: files looked at at once, per batch.
        sweep: writers' files that nothing needs may be deleted here; all tables' files here are this catalog's.
        sweep_credential_id: connection with keys that may delete here; none: `credential_id`.
    """

    id: Name
    prefix: Uri
    region: str
    remote: Remote
    credential_id: CredentialId | None = None
    egress_per_gb: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    bandwidth: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:,. /_+-]+$")] | None = None
    transfers: Annotated[int, Field(ge=1, le=1024)] = 32
    checkers: Annotated[int, Field(ge=1, le=1024)] = 64
    sweep: bool = False
    sweep_credential_id: CredentialId | None = None

    @model_validator(mode="after")
    def _validate_backend(self) -> Location:
        scheme = self.prefix.partition("://")[0]
        expected = TYPE_BY_SCHEME.get(scheme, self.remote.type)
        if expected != self.remote.type:
            raise ValueError(f"a {scheme}:// prefix is reached by remote.type {expected!r}, not {self.remote.type!r}")
        return self

    @model_validator(mode="after")
    def _validate_options(self) -> Location:
        options = self.remote.options
        messages = dict(unknown_options(self.remote.type, options))
        if self.credential_id is not None:
            conflict = "names another login than credential_id: remove one of them"
            messages |= dict.fromkeys(login_options(options), conflict)
        account, prefix_account = options.get("account", ""), _azure_account(self.prefix)
        if account and prefix_account and account != prefix_account:
            messages["account"] = f"the prefix names another one, {prefix_account!r}: leave it out"
        if messages:
            raise Faults([Fault(("remote", "options", option), message) for option, message in messages.items()])
        return self

    @field_validator("bandwidth")
    @classmethod
    def _validate_bandwidth(cls, value: str | None) -> str | None:
        if value is not None:
            parse_bandwidth(value)
        return value

    @property
    def store_type(self) -> StoreType:
        """What is known of its kind of store."""
        return STORE_TYPES[self.remote.type]

    def egress_price(self, region: str) -> float:
        """Return what a region pays for a GB that it reads from here."""
        return self.egress_per_gb.get(region, self.egress_per_gb.get("*", 0.0))

    @property
    def binding(self) -> str:
        """What is bound to this id and may never change: its prefix and region."""
        return f"{self.prefix} {self.region}"


class Registry(StrictModel):
    """The registry, shared by all regions.

    Args:
        version: of this file's format.
        regions: the regions.
        locations: the locations.
        policies: in the order in which they are tried; none: all tables, full history.
        residency: rules that keep keys out of regions; all that match count.
        views: what names of catalogs in views mean; default: names stay as they are.
    """

    version: Literal[1] = 1
    regions: list[Region] = Field(min_length=1)
    locations: list[Location] = Field(min_length=1)
    policies: list[Policy] = Field(default_factory=list)
    residency: list[Residency] = Field(default_factory=list)
    views: ViewCatalogs = Field(default_factory=ViewCatalogs)

    @model_validator(mode="after")
    def _validate_consistency(self) -> Registry:
        faults = [*_consistency_faults(self), *case_colliding_credentials(self)]
        if faults:
            raise Faults(faults)
        return self

    def region(self, name: str) -> Region:
        """Return the region of that name; KeyError where there is none."""
        return (
            next(region for region in self.regions if region.name == name)
            if name in self.region_names
            else _raise_key_error(name)
        )

    @property
    def region_names(self) -> list[str]:
        """The regions' names, in the file's order."""
        return [region.name for region in self.regions]

    def policy(self, name: str) -> Policy:
        """Return the first policy that matches a dotted key name, or the default: replicate, full history."""
        return next((policy for policy in self.policies if policy.matches(name)), DEFAULT_POLICY)

    def exclusion_reason(self, name: str, region: str, *, namespace: bool = False) -> str:
        """Return why a key of `main` has no replica in a region, "" when it has one.

        Policies are for tables and views alone.
        """
        policy = self.policy(name)
        if not namespace and not policy.replicate:
            return f"policy {matching_pattern(policy.tables, name)!r}: replicate is false"
        return next(
            (reason for reason in (rule.exclusion_reason(name, region) for rule in self.residency) if reason), ""
        )

    @property
    def has_exclusions(self) -> bool:
        """Whether some key could be refused in some region."""
        return any(rule.tables for rule in self.residency) or any(not policy.replicate for policy in self.policies)

    def fingerprint(self) -> str:
        """Return a hex digest over everything in the registry: the stages of one run work with one and the same.

        Plans and bulk runs contain it, which another version may continue: a setting counts by its name when they were
        introduced, and one added after November 2026 only where it isn't left at its default.
        """
        return digest(_fingerprint_fields(self, self.model_dump(mode="json", by_alias=True)))

    def digest(self) -> str:
        """Return a hex digest over what decides a replica: two registries of one digest make the same one.

        A region whose head has another digest compares every key. So these count, since each changes where a URI is
        mapped to, which keys are replicated, or how much of them:

        * of regions the name (of the owner of a location), the replica root (the copies are below it, and URIs of
          `main` below any region's are mapped back to their origin) and the replica branch;
        * of locations the id, the prefix and the region;
        * of policies, residency and views their `digest_fields`;
        * the regions that keep verbatim copies, so that those of earlier versions are added.

        These don't: catalogs, Spark, where to localize, and limits; how a location is reached, what it costs, and how
        fast copying may be. They change the way there, and nothing that arrives.

        A field left at its default, an optional one that came later among them, counts as if it weren't there. Order
        counts among policies, for the first one that matches decides. Elsewhere it doesn't, but among locations that
        are one place in two spellings: a third spelling belongs to the first of them.
        """
        places: dict[str, list[str]] = {}
        for location in self.locations:
            places.setdefault(canonical_prefix(location.prefix), []).append(location.id)
        rules = [policy.digest_fields() for policy in self.policies]
        while rules and rules[-1].keys() == {"tables"}:  # the default is the same
            rules.pop()
        return digest(
            {
                "version": self.version,
                "regions": {region.name: [region.replica_root, region.replica_branch] for region in self.regions},
                "locations": self.bindings(),
                "spellings": sorted(ids for ids in places.values() if len(ids) > 1),
                "policies": rules,
                **({"verbatim": verbatim} if (verbatim := self._regions_with_copies()) else {}),
                "residency": sorted((rule.digest_fields() for rule in self.residency), key=repr),
                **({"views": views} if (views := self.views.digest_fields()) else {}),
            }
        )

    def _regions_with_copies(self) -> list[str]:
        return sorted(region.name for region in self.regions if region.verbatim_copies)

    @property
    def has_regional_catalogs(self) -> bool:
        """Whether each region has a catalog of its own, copied from one primary's."""
        return self.regions[0].catalog.database is not None

    def bindings(self) -> dict[str, str]:
        """Return what each location id is bound to."""
        return {location.id: location.binding for location in self.locations}


# The settings of November 2026, by their names in the file: what was at its default counted, too.
FIRST_SETTINGS: Final[dict[type[StrictModel], frozenset[str]]] = {
    model: frozenset(names.split())
    for model, names in (
        (Registry, "version regions locations policies residency"),
        (Region, "name replica_branch replica_root catalog spark localize limits large_copy"),
        (CatalogAddress, "read write credential_id database"),
        (
            CatalogDatabase,
            "hosts name role credential_id replication_hosts replication_credential_id sslmode look_timeout "
            "work_timeout",
        ),
        (
            Location,
            "id prefix region remote credential_id egress_per_gb bandwidth transfers checkers sweep "
            "sweep_credential_id",
        ),
        (Remote, "type options name config"),
        (Policy, "tables replicate history atomic ship"),
        (History, "latest since"),
        (AdmissionPolicy, "after"),
        (Residency, "tables locations prefixes only never"),
        (
            Limits,
            "file_bytes json_bytes json_objects json_values ratio block_bytes block_records inflated_bytes records "
            "manifests delete_rows delete_bytes plan_bytes",
        ),
    )
}
# What a setting was called when the first fingerprints were written.
_FINGERPRINT_NAMES: Final[dict[tuple[type[StrictModel], str], str]] = {(Region, "bulk_copy_threshold"): "large_copy"}


def _fingerprint_fields(value: Any, dumped: Any) -> Any:
    """Return what of a dumped setting its registry's fingerprint covers."""
    if isinstance(value, list):
        return [
            _fingerprint_fields(element, dumped_element) for element, dumped_element in zip(value, dumped, strict=True)
        ]
    if not isinstance(value, StrictModel):
        return dumped
    first_settings, included = FIRST_SETTINGS.get(type(value), frozenset()), {}
    for attribute, model_field in type(value).model_fields.items():
        name, setting = model_field.serialization_alias or attribute, getattr(value, attribute)
        recorded_name = _FINGERPRINT_NAMES.get((type(value), attribute), name)
        if recorded_name in first_settings or setting != model_field.get_default(call_default_factory=True):
            included[recorded_name] = _fingerprint_fields(setting, dumped[name])
    return included


def digest(value: object) -> str:
    """Return 16 hex digits over a JSON value, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def is_inside(uri: str, prefix: str) -> bool:
    """Return whether a URI is a prefix or below it, by whole path segments."""
    return uri == prefix or uri.startswith(prefix + "/")


def prefix_spellings(prefix: str) -> dict[str, str]:
    """Return every spelling of a prefix, by the name of its alias; the prefix's own is under ""."""
    for family in ALIASES:
        scheme_name = next((name for name in family if prefix.startswith(family[name])), None)
        if scheme_name is not None:
            rest = prefix.removeprefix(family[scheme_name])
            return {"" if name == scheme_name else name: start + rest for name, start in family.items()}
    return {"": prefix}


def canonical_prefix(prefix: str) -> str:
    """Return the one spelling in which two prefixes of the same place are equal."""
    return min(prefix_spellings(prefix).values())


def _raise_key_error(name: str) -> Region:
    raise KeyError(name)


def _azure_account(prefix: str) -> str:
    """Return the storage account that an Azure prefix names, else ""."""
    return prefix.partition("://")[2].partition("/")[0].partition("@")[2].partition(".")[0]


def _consistency_faults(registry: Registry) -> Iterator[Fault]:
    locations = registry.locations
    yield from _duplicate_faults("regions", "name", "region", registry.region_names)
    # rclone reads a remote's settings from RCLONE_CONFIG_<ID>_*, where "-" and "_" are the same.
    yield from _duplicate_faults(
        "locations", "id", "location id", [location.id.replace("-", "_") for location in locations]
    )
    yield from _duplicate_faults("locations", "prefix", "location prefix", [location.prefix for location in locations])
    if len({region.catalog.database is None for region in registry.regions}) > 1:
        message = "only some regions have catalog.database: all have a copy of the catalog, or none has"
        yield Fault((), message)
    branches = [region.replica_branch for region in registry.regions]
    yield from _duplicate_faults("regions", "replica_branch", "replica_branch", branches)
    yield from _unknown_region_faults(registry)
    for number, region in enumerate(registry.regions):
        yield from (
            Fault(("regions", number, "replica_root"), message) for message in _replica_root_faults(region, locations)
        )
    for number, rule in enumerate(registry.residency):
        yield from (Fault(("residency", number), message) for message in _residency_faults(rule, locations))
    yield from _alias_faults(registry)
    for one, other in combinations(registry.regions, 2):
        first, second = canonical_prefix(one.replica_root), canonical_prefix(other.replica_root)
        if is_inside(first, second) or is_inside(second, first):
            message = f"replica roots {one.replica_root} and {other.replica_root} contain one another"
            yield Fault(("regions", registry.regions.index(other), "replica_root"), message)


def _unknown_region_faults(registry: Registry) -> Iterator[Fault]:
    region_names = set(registry.region_names)
    references: list[tuple[FieldPath, str]] = []
    for number, location in enumerate(registry.locations):
        references.append((("locations", number, "region"), location.region))
        prices = location.egress_per_gb.keys() - {"*"}
        references += [(("locations", number, "egress_per_gb", name), name) for name in sorted(prices)]
    for number, rule in enumerate(registry.residency):
        references += [(("residency", number, "only", index), name) for index, name in enumerate(rule.only or ())]
        references += [(("residency", number, "never", index), name) for index, name in enumerate(rule.never)]
    for field, name in references:
        if name not in region_names:
            yield Fault(field, f"region {name!r} is not among the regions {sorted(region_names)}")


def _alias_faults(registry: Registry) -> Iterator[Fault]:
    """Yield pairs of locations that are one place in two spellings, with different settings.

    A file there can be named in either spelling, which would determine the settings that apply to it.
    """
    places: dict[str, Location] = {}
    for number, other in enumerate(registry.locations):
        one = places.setdefault(canonical_prefix(other.prefix), other)
        if one.prefix == other.prefix:
            continue
        place = f"location {other.id!r} is the place of {one.id!r} in another spelling"
        for field in ("region", "sweep"):
            if getattr(one, field) != getattr(other, field):
                yield Fault(("locations", number, field), f"{place}: both have the same {field}")
        for index, rule in enumerate(registry.residency):
            if (one.id in rule.locations) != (other.id in rule.locations):
                yield Fault(("residency", index, "locations"), f"{place}: name both")


def _replica_root_faults(region: Region, locations: list[Location]) -> Iterator[str]:
    root = canonical_prefix(region.replica_root)
    enclosing = [location for location in locations if is_inside(root, canonical_prefix(location.prefix))]
    home = max(enclosing, key=lambda location: len(canonical_prefix(location.prefix)), default=None)
    if home is None or home.region != region.name:
        yield f"region {region.name!r}: replica_root {region.replica_root} is in no location of that region"
    for location in locations:
        # A location may *be* a replica root (a bucket for replicas alone). One below it would claim what sterna copied
        # there.
        if canonical_prefix(location.prefix) != root and is_inside(canonical_prefix(location.prefix), root):
            yield f"location {location.id!r} ({location.prefix}) is below the replica root of region {region.name!r}"


def _residency_faults(rule: Residency, locations: list[Location]) -> Iterator[str]:
    """Yield what is wrong with the places of a rule: such a rule would protect nothing, or a place from itself."""
    by_id = {location.id: location for location in locations}
    for id in rule.locations:
        if id not in by_id:
            yield f"location {id!r} is not among the locations {sorted(by_id)}"
        elif not rule.allows(by_id[id].region):
            yield f"location {id!r} is in region {by_id[id].region!r}, which the rule refuses"
    for prefix in rule.prefixes:
        enclosing = [
            candidate
            for candidate in locations
            if is_inside(canonical_prefix(prefix), canonical_prefix(candidate.prefix))
        ]
        home = max(enclosing, key=lambda candidate: len(canonical_prefix(candidate.prefix)), default=None)
        if home is None:
            yield f"prefix {prefix} is in no location"
        elif not rule.allows(home.region):
            yield f"prefix {prefix} is in region {home.region!r}, which the rule refuses"


def _duplicate_faults(section: str, field: str, what: str, values: list[str]) -> Iterator[Fault]:
    for number, value in enumerate(values):
        if value in values[:number]:
            yield Fault((section, number, field), f"{what} {value!r} appears twice: each has its own")
