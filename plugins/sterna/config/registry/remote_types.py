"""Options of a remote: those on rclone's own list, and those that other settings already decide."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from sterna.config.registry.types import SECRET_OPTION

RemoteType = Literal["s3", "google cloud storage", "azureblob", "local"]
"""rclone's names of the backends that a location may have."""

ALIASES: Final = (
    {"s3": "s3://", "s3a": "s3a://", "s3n": "s3n://"},
    {"abfs": "abfs://", "abfss": "abfss://"},
    {"wasb": "wasb://", "wasbs": "wasbs://"},
    # Hadoop writes file:/x where others write file:///x.
    {"file": "file://", "file1": "file:"},
)
"""Spellings of one place, by the name of the spelling and what stands before the authority; the first is canonical."""

RCLONE_BACKENDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    "gs": "google cloud storage",
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "azureblob"),
    "file": "local",
}
"""The backend that reaches a scheme; a scheme that is not listed (oss, cosn, …) may have any."""

OBSTORE_CLASSES: Final[Mapping[str, str]] = {
    "s3": "S3Store",
    "google cloud storage": "GCSStore",
    "azureblob": "AzureStore",
}
"""The class of obstore's that opens a type; a local folder needs no options."""

SEEKABLE_LISTINGS: Final = frozenset({"s3", "google cloud storage"})
"""Types whose listings can start in the middle; Azure's read all that stands before."""

# The encoding of rclone's own paths. With the same one for the store a key passes byte for byte; with the stores'
# defaults keys that hold one of rclone's replacement characters (U+201B, U+2401, …) arrive under another name.
RCLONE_ENCODING: Final = "Slash,Ctl,Del,Dot"


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Source: rclone 1.75.2, `rclone config providers`; a test compares them with the rclone that is installed.
OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "s3": _split_names(
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
    ),
    "google cloud storage": _split_names(
        """
        access_token anonymous auth_url bucket_acl bucket_policy_only client_credentials client_id client_secret
        decompress description directory_markers encoding endpoint env_auth location no_check_bucket object_acl
        project_number service_account_credentials service_account_file storage_class token token_url user_project
        """
    ),
    "azureblob": _split_names(
        """
        access_tier account archive_tier_delete chunk_size client_certificate_password client_certificate_path client_id
        client_secret client_send_certificate_chain connection_string copy_concurrency copy_cutoff
        copy_total_concurrency decompress delete_snapshots description directory_markers disable_checksum
        disable_instance_discovery encoding endpoint env_auth key list_chunk list_parallelism memory_pool_flush_time
        memory_pool_use_mmap msi_client_id msi_mi_res_id msi_object_id no_check_container no_head_object password
        public_access sas_url service_principal_file tenant upload_concurrency upload_cutoff use_arrow_list use_az
        use_copy_blob use_emulator use_msi username
        """
    ),
    "local": _split_names(
        """
        case_insensitive case_sensitive copy_links description encoding fatal_if_no_space hashes links
        metadata_restore_special_bits no_check_updated no_clone no_preallocate no_set_modtime no_sparse nounc
        one_file_system skip_links skip_specials time_type unicode_normalization zero_size_links
        """
    ),
}
# Set by sterna, whose guarantees depend on them: they may be repeated with the same value.
_FIXED_OPTIONS: Final = {"encoding": RCLONE_ENCODING, "no_check_bucket": "true", "no_check_container": "true"}
# Options by which rclone logs in otherwise than with the credential of the location.
_LOGIN_OPTIONS: Final = _split_names(
    """
    anonymous client_certificate_path env_auth profile service_account_file service_principal_file tenant use_az
    use_emulator use_msi username
    """
)
# What sterna reads itself: whatever rclone takes for true or false beside these would be read in two ways.
_BOOLEAN_OPTIONS: Final = _split_names("anonymous force_path_style")
_MIN_SIMILARITY: Final = 0.75  # of difflib: what is less like an option was hardly meant
_CONNECTION_HINT: Final = "put it into an Airflow connection and name it in credential_id"


def invalid_options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options that no remote may have, and why; never the value."""
    for option, value in options.items():
        if SECRET_OPTION.search(option):
            yield option, f"looks like a secret: {_CONNECTION_HINT}"
        elif "@" in value.partition("://")[2].partition("/")[0]:
            yield option, f"holds user-info: {_CONNECTION_HINT}"
        elif value != _FIXED_OPTIONS.get(option, value):
            yield option, f"is always {_FIXED_OPTIONS[option]!r} here: leave it out"
        elif option in _BOOLEAN_OPTIONS and value not in ("true", "false"):
            yield option, 'expected "true" or "false"'


def unknown_options(type: str, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options that rclone's backend of a type doesn't have, and what was meant."""
    backend_options = OPTIONS[type]
    public = sorted(name for name in backend_options if not SECRET_OPTION.search(name))
    for option in options:
        if option not in backend_options:
            similar = difflib.get_close_matches(option.lower().replace("-", "_"), public, 1, _MIN_SIMILARITY)
            hint = f"did you mean {similar[0]}?" if similar else f"`rclone help backend {type!r}` lists them"
            yield option, f"rclone's backend {type!r} has no such option: {hint}"


def login_options(options: Mapping[str, str]) -> list[str]:
    """Return the options by which rclone would log in otherwise than with the location's credential."""
    return [option for option, value in options.items() if option in _LOGIN_OPTIONS and value not in ("", "false")]
