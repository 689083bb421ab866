"""Azure Blob Storage's names for a location's settings: rclone's, obstore's and Iceberg's."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from sterna.config.registry.connection import (
    Credential,
    StaticCredentialProvider,
    StoreLocation,
    extra_text,
    incomplete_credential,
    store_address,
)
from sterna.config.registry.store_type import ConnectionForm, FormField, StoreType, split_names

# Azure makes "/" of a backslash, and drops the dots that a part ends with: two keys would be one object.
AMBIGUOUS_KEY: Final = re.compile(r"\\|\.(/|$)")
_SUFFIX = "core.windows.net"
_REQUIRED_FIELDS = (
    "a password (account key), extra.sas_token, extra.connection_string with one of them, or login, password and "
    "extra.tenant_id"
)
_NO_ACCOUNT = "the storage account's name, which neither prefix nor options.account has"
# Source: rclone 1.75.2, `rclone config providers`; a test compares them with the rclone that is installed.
_OPTIONS: Final = split_names(
    """
    access_tier account archive_tier_delete chunk_size client_certificate_password client_certificate_path client_id
    client_secret client_send_certificate_chain connection_string copy_concurrency copy_cutoff
    copy_total_concurrency decompress delete_snapshots description directory_markers disable_checksum
    disable_instance_discovery encoding endpoint env_auth key list_chunk list_parallelism memory_pool_flush_time
    memory_pool_use_mmap msi_client_id msi_mi_res_id msi_object_id no_check_container no_head_object password
    public_access sas_url service_principal_file tenant upload_concurrency upload_cutoff use_arrow_list use_az
    use_copy_blob use_emulator use_msi username
    """
)


@dataclass(frozen=True)
class _AccountAccess:
    """The account, its endpoint and its credential.

    Of key, sas and client one is given, none of them for what the machine provides.
    """

    account: str
    endpoint: str
    key: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    tenant: str = ""
    client: str = ""
    secret: str = field(default="", repr=False)


def rclone_options(location: StoreLocation, credential: Credential | None) -> dict[str, str]:
    """Return the options of rclone's backend `azureblob`."""
    access = _access(location, credential)
    # As for S3: containers are never made by a copy.
    options = {"account": access.account, "no_check_container": "true", **_rclone_keys(location, access)}
    return {**options, **location.remote.options, "endpoint": access.endpoint}


def store_options(location: StoreLocation, credential: Credential | None) -> dict[str, Any]:
    """Return obstore's AzureConfig."""
    access = _access(location, credential)
    # Everything is named, so that no AZURE_* variable of the process can redirect a location.
    options: dict[str, Any] = {"account_name": access.account, "endpoint": access.endpoint}
    options |= dict.fromkeys(("use_emulator", "use_fabric_endpoint", "skip_signature"), False)
    if access.key:
        options["credential_provider"] = StaticCredentialProvider({"access_key": access.key, "expires_at": None})
    elif access.sas:
        options["credential_provider"] = StaticCredentialProvider({"sas_token": access.sas, "expires_at": None})
    elif access.client:
        options |= {"tenant_id": access.tenant, "client_id": access.client, "client_secret": access.secret}
        options["credential_type"] = "client_secret"
    return options


def fileio_properties(location: StoreLocation, credential: Credential | None) -> dict[str, str]:
    """Return the properties of Iceberg's ADLSFileIO and of PyIceberg's."""
    access = _access(location, credential)
    # Java's names, then PyIceberg's; Java's Azure identity of a service principal comes from the AZURE_* variables
    # alone.
    properties = {
        "adls.auth.shared-key.account.name": access.account if access.key else "",
        "adls.auth.shared-key.account.key": access.key,
        f"adls.sas-token.{_host(location) or access.account}": access.sas,
        "adls.account-name": access.account,
        "adls.account-key": access.key,
        "adls.sas-token": access.sas,
        "adls.tenant-id": access.tenant,
        "adls.client-id": access.client,
        "adls.client-secret": access.secret,
        **_fileio_endpoint(location, access),
    }
    return {name: value for name, value in properties.items() if value}


def _rclone_keys(location: StoreLocation, access: _AccountAccess) -> dict[str, str]:
    if access.key:
        return {"key": access.key}
    if access.sas:
        return {"sas_url": f"{access.endpoint}/{store_address(location).bucket}?{access.sas}"}
    if access.client:
        return {"tenant": access.tenant, "client_id": access.client, "client_secret": access.secret}
    return {"env_auth": "true"}


def _fileio_endpoint(location: StoreLocation, access: _AccountAccess) -> dict[str, str]:
    """Return what leads Iceberg's readers to an endpoint that they don't find by themselves."""
    if access.endpoint == f"https://{access.account}.blob.{_SUFFIX}":
        return {}
    # Java takes the endpoint by the name of a connection string, and derives the other service of the same store.
    java: dict[str, str] = {}
    if access.endpoint != _prefix_endpoint(location):
        java = {_java_endpoint(location): access.endpoint.replace(".blob.", ".dfs.", 1)}
    # PyIceberg takes the endpoint of a service principal as a host, anybody else's in a connection string.
    if access.client:
        return {**java, "adls.account-host": access.endpoint.partition("://")[2]}
    key = f"AccountKey={access.key}" if access.key else f"SharedAccessSignature={access.sas}"
    text = f"AccountName={access.account};{key};BlobEndpoint={access.endpoint};"
    return {**java, "adls.connection-string": text if access.key or access.sas else ""}


def _java_endpoint(location: StoreLocation) -> str:
    return f"adls.connection-string.{_host(location)}"


def _host(location: StoreLocation) -> str:
    return location.prefix.partition("://")[2].partition("/")[0].partition("@")[2]


def _prefix_endpoint(location: StoreLocation) -> str:
    """Return the endpoint that a prefix names, in whichever of Azure's clouds; "" where it names a container alone."""
    host = _host(location)
    return f"https://{host.replace('.dfs.', '.blob.', 1)}" if "." in host else ""


def _access(location: StoreLocation, credential: Credential | None) -> _AccountAccess:
    connection = _parse_connection_string(extra_text(credential, "connection_string")) if credential else {}
    account = (
        store_address(location).account
        or location.remote.options.get("account", "")
        or connection.get("AccountName", "")
    )
    if credential is None:
        return _AccountAccess(account, _endpoint(location, account, connection))
    key, tenant = "", _tenant(credential)
    sas = extra_text(credential, "sas_token") or connection.get("SharedAccessSignature", "")
    if not sas and not tenant:
        key = connection.get("AccountKey", "") or credential.password
        account = account or credential.login
    client, secret = (credential.login, credential.password) if tenant and not sas else ("", "")
    if not (key or sas or (client and secret)):
        raise incomplete_credential(location, credential, _REQUIRED_FIELDS)
    if not account:
        raise incomplete_credential(location, credential, _NO_ACCOUNT)
    return _AccountAccess(
        account,
        _endpoint(location, account, connection),
        key,
        sas.lstrip("?"),
        tenant if client else "",
        client,
        secret,
    )


def _tenant(credential: Credential) -> str:
    return (
        "" if credential.extra.get("connection_string") else extra_text(credential, "tenant_id", "tenantId", "tenant")
    )


def _endpoint(location: StoreLocation, account: str, connection: dict[str, str]) -> str:
    """Return the blob service's endpoint: the registry's, the connection string's, or the prefix's."""
    endpoint = location.remote.options.get("endpoint", "") or connection.get("BlobEndpoint", "")
    if not endpoint and not _prefix_endpoint(location):
        scheme, suffix = connection.get("DefaultEndpointsProtocol", "https"), connection.get("EndpointSuffix", _SUFFIX)
        endpoint = f"{scheme}://{account}.blob.{suffix}"
    endpoint = (endpoint or _prefix_endpoint(location)).rstrip("/")
    return endpoint if "://" in endpoint else f"https://{endpoint}"


def _parse_connection_string(text: str) -> dict[str, str]:
    """Return the parts of an Azure storage connection string.

    Source: Azure Storage docs, "Configure Azure Storage connection strings".
    """
    parts = (part.partition("=") for part in text.split(";"))
    return {name.strip(): value.strip() for name, _, value in parts}


AZURE: Final = StoreType(
    name="azureblob",
    schemes=("abfs", "abfss", "wasb", "wasbs"),
    spellings=({"abfs": "abfs://", "abfss": "abfss://"}, {"wasb": "wasb://", "wasbs": "wasbs://"}),
    obstore_class="AzureStore",
    rclone_options=rclone_options,
    store_options=store_options,
    fileio_properties=fileio_properties,
    options=_OPTIONS,
    form=ConnectionForm(
        "azure",
        "SternaAzureHook",
        "Azure storage for sterna",
        labels={"login": "Account name or client id", "password": "Account key or client secret"},
        fields={
            "tenant_id": FormField("Tenant id", "With a service principal.", "text"),
            "sas_token": FormField("SAS token", "Instead of login and password."),
            "connection_string": FormField("Connection string", "Instead of everything else."),
        },
    ),
    ambiguous_key=AMBIGUOUS_KEY,
)
