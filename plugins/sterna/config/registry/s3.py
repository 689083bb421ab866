"""S3's names for a location's settings: rclone's, obstore's and Iceberg's."""

from __future__ import annotations

from typing import Any, Final

from sterna.config.registry.connection import (
    Credential,
    StaticCredentialProvider,
    StoreLocation,
    extra_text,
    incomplete_credential,
    single_value,
    store_address,
)
from sterna.config.registry.store_type import ConnectionForm, FormField, StoreType, split_names

DEFAULT_AWS_REGION = "us-east-1"  # what every S3 client takes when none is named
# Source: rclone 1.75.2, `rclone config providers`; a test compares them with the rclone that is installed.
_OPTIONS: Final = split_names(
    """
    access_key_id acl bucket_acl bucket_object_lock_enabled bypass_governance_retention chunk_size copy_cutoff
    decompress description directory_bucket directory_markers disable_checksum disable_http2 download_url encoding
    endpoint env_auth force_path_style ibm_api_key ibm_iam_endpoint ibm_resource_instance_id leave_parts_on_error
    list_chunk list_url_encode list_version list_versions_oldest_first location_constraint max_upload_parts
    memory_pool_flush_time memory_pool_use_mmap might_gzip no_check_bucket no_head no_head_object no_system_metadata
    object_lock_legal_hold_status object_lock_mode object_lock_retain_until_date object_lock_set_after_upload
    object_lock_supported profile provider region requester_pays role_arn role_external_id role_session_duration
    role_session_name sdk_log_mode secret_access_key server_side_encryption session_token shared_credentials_file
    sign_accept_encoding sse_customer_algorithm sse_customer_key sse_customer_key_base64 sse_customer_key_md5
    sse_kms_key_id storage_class sts_endpoint upload_concurrency upload_cutoff use_accelerate_endpoint
    use_accept_encoding_gzip use_already_exists use_arn_region use_data_integrity_protections use_dual_stack
    use_multipart_etag use_multipart_uploads use_presigned_request use_unsigned_payload use_x_id v2_auth version_at
    version_deleted versions
    """
)


def rclone_options(location: StoreLocation, credential: Credential | None) -> dict[str, str]:
    """Return the options of rclone's backend `s3`."""
    # Buckets are never made by a copy; checking for them would cost a request and a right.
    options = {"provider": "Other" if "endpoint" in location.remote.options else "AWS", "no_check_bucket": "true"}
    options["region"] = s3_region(location)
    if credential is None:
        return {**options, "env_auth": "true", **location.remote.options}
    key, secret, token = s3_keys(location, credential)
    keys = {"access_key_id": key, "secret_access_key": secret, **({"session_token": token} if token else {})}
    return {**options, **keys, **location.remote.options}


def store_options(location: StoreLocation, credential: Credential | None) -> dict[str, Any]:
    """Return obstore's S3Config."""
    # Everything is named, so that no AWS_* variable of the process can redirect a location.
    options: dict[str, Any] = {"region": s3_region(location), "skip_signature": False}
    endpoint, bucket = s3_endpoint(location), store_address(location).bucket
    if not is_path_style(location):
        scheme, _, host = endpoint.partition("://")
        endpoint = f"{scheme}://{bucket}.{host}"
    options |= {
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "virtual_hosted_style_request": not is_path_style(location),
    }
    if credential is not None:
        key, secret, token = s3_keys(location, credential)
        options["credential_provider"] = StaticCredentialProvider(
            {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
        )
    return options


def fileio_properties(location: StoreLocation, credential: Credential | None) -> dict[str, str]:
    """Return the properties of Iceberg's S3FileIO."""
    region = s3_region(location)
    properties = {"s3.endpoint": s3_endpoint(location), "s3.path-style-access": str(is_path_style(location)).lower()}
    properties |= {"client.region": region, "s3.region": region}
    if credential is None:
        return properties
    key, secret, token = s3_keys(location, credential)
    keys = {"s3.access-key-id": key, "s3.secret-access-key": secret}
    return {**properties, **keys, **({"s3.session-token": token} if token else {})}


def s3_endpoint(location: StoreLocation) -> str:
    """Return the endpoint of an S3 location, with its scheme; AWS's own where the registry names none."""
    endpoint = location.remote.options.get("endpoint", "")
    if not endpoint:
        region = s3_region(location)
        return f"https://s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
    return endpoint if "://" in endpoint else f"https://{endpoint}"


def bucket_url(location: StoreLocation) -> str:
    """Return the URL of an S3 location's bucket."""
    endpoint, bucket = s3_endpoint(location).rstrip("/"), store_address(location).bucket
    scheme, _, host = endpoint.partition("://")
    return f"{endpoint}/{bucket}" if is_path_style(location) else f"{scheme}://{bucket}.{host}"


def s3_keys(location: StoreLocation, credential: Credential) -> tuple[str, str, str | None]:
    """Return access key id, secret access key and session token.

    Raises:
        CredentialError: one of the keys is missing, or given in two ways.
    """
    names = "aws_access_key_id", "aws_secret_access_key"
    key, secret = (extra_text(credential, name) for name in names)
    key = single_value(credential, {"login": credential.login, f"extra.{names[0]}": key})
    secret = single_value(credential, {"password": credential.password, f"extra.{names[1]}": secret})
    if not key or not secret:
        raise incomplete_credential(location, credential, "login (access key id) and password (secret access key)")
    return key, secret, extra_text(credential, "session_token", "aws_session_token") or None


def s3_region(location: StoreLocation) -> str:
    """Return the region that requests to an S3 location are signed for."""
    return location.remote.options.get("region") or DEFAULT_AWS_REGION


def is_path_style(location: StoreLocation) -> bool:
    """Return whether requests to an S3 location name its bucket in the path, and not in the host."""
    return location.remote.options.get("force_path_style", "true").lower() != "false"


S3: Final = StoreType(
    name="s3",
    schemes=("s3", "s3a", "s3n"),
    spellings=({"s3": "s3://", "s3a": "s3a://", "s3n": "s3n://"},),
    obstore_class="S3Store",
    rclone_options=rclone_options,
    store_options=store_options,
    fileio_properties=fileio_properties,
    options=_OPTIONS,
    form=ConnectionForm(
        "s3",
        "SternaS3Hook",
        "S3 for sterna",
        labels={"login": "Access key id", "password": "Secret access key"},
        fields={"session_token": FormField("Session token", "With temporary keys only.")},
    ),
    has_seekable_listings=True,
    may_ignore_ranges=True,
)
