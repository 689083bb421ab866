"""Mapping many content files at once, as columns: a manifest's files are in a few folders."""

from __future__ import annotations

from typing import Any

from sterna.config.mapping import SAFE_URI_CHARACTERS, Mapping
from sterna.config.registry.paths import PLAIN_NAME
from sterna.libraries import np, pa, pc

_PLAIN_NAME = rf"\A(?:{PLAIN_NAME.pattern})\z"
_SLASH = ord("/")
_MIN_URIS = 200  # of fewer, columns cost more than they save


def map_content_uris(mapping: Mapping, uris: pa.StringArray) -> pa.StringArray:
    """Return `Mapping.content_uri` of each URI.

    Where there are many, and every URI of a folder is mapped alike, that is worked out once for the folder.

    Raises:
        UnregisteredUri, UnsafeUri, Unsupported, NotResident: as `Mapping.content_uri`.
    """
    if len(uris) < _MIN_URIS:
        return _map_singly(mapping, uris)
    folders, names = _split_names(uris)
    encoded, is_plain = folders.dictionary_encode(), _find_plain(mapping, uris, names)
    codes = encoded.indices.to_numpy()
    firsts = dict(zip(*(column.tolist() for column in _first_rows(codes, is_plain)), strict=True))
    places = [
        mapping.content_folders(uris[firsts[code]].as_py()) if code in firsts else ("", "")
        for code in range(len(encoded.dictionary))
    ]
    lengths = np.array([len(replica) if replica.isascii() else SAFE_URI_CHARACTERS for replica, _ in places])
    is_safe = lengths[codes] + 1 + pc.binary_length(names).to_numpy() <= SAFE_URI_CHARACTERS
    mapped_folders = pa.array([local or replica for replica, local in places], pa.string())
    targets = pc.binary_join_element_wise(mapped_folders.take(encoded.indices), names, "/")
    others = ~(is_plain & is_safe)
    if not others.any():
        return targets
    mask = pa.array(others)
    return pc.replace_with_mask(targets, mask, _map_singly(mapping, uris.filter(mask)))


def _map_singly(mapping: Mapping, uris: pa.StringArray) -> pa.StringArray:
    return pa.array([mapping.content_uri(uri) for uri in uris.to_pylist()], pa.string())


def _first_rows(codes: Any, is_plain: Any) -> tuple[Any, Any]:
    """Return the folders that have a plain name, and the row of the first one in each."""
    rows = np.flatnonzero(is_plain)
    folders, positions = np.unique(codes[rows], return_index=True)
    return folders, rows[positions]


def _find_plain(mapping: Mapping, uris: pa.StringArray, names: pa.StringArray) -> Any:
    """Return which URIs are mapped as others in their folder are, as a numpy array; see `Mapping.maps_like_folder`."""
    is_plain = pc.match_substring_regex(names, _PLAIN_NAME)
    is_boundary = pc.is_in(uris, pa.array(sorted(mapping.boundaries), pa.string()))
    return pc.and_not(is_plain, is_boundary).to_numpy(zero_copy_only=False)


def _split_names(uris: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Return the part of each URI before its last slash, and the one behind it; all of it is the name without one."""
    _, offsets, data = uris.buffers()
    bounds = np.frombuffer(offsets, np.int32)[uris.offset : uris.offset + len(uris) + 1]
    starts, ends = bounds[:-1], bounds[1:]
    slashes = np.flatnonzero(np.frombuffer(data or b"", np.uint8) == _SLASH).astype(np.int32)
    last = np.append(np.int32(-1), slashes)[np.searchsorted(slashes, ends)]
    has_slash = last >= starts
    folder_ends, name_starts = np.where(has_slash, last, starts), np.where(has_slash, last + 1, starts)
    return _slice_texts(data, starts, folder_ends), _slice_texts(data, name_starts, ends)


def _slice_texts(data: pa.Buffer, starts: Any, ends: Any) -> pa.StringArray:
    # What is wanted and the gaps between, by turns, are the data itself.
    offsets = pa.py_buffer(np.stack([starts, ends], axis=1).astype(np.int32).ravel())
    pieces = pa.StringArray.from_buffers(max(2 * len(starts) - 1, 0), offsets, data)
    return pieces.take(pa.array(np.arange(0, len(pieces), 2)))
