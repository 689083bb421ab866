"""Faults in clean-ups."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.mutations.model import Mutation

_gc = partial(Mutation, component="clean-up", near=("unit/gc",), servers=("integration/gc",))

CLEAN_UP: Final = (
    _gc(
        name="holds are ignored",
        file="gc/heads.py",
        old="            if reference.name != branch:\n",
        new='            if reference.name != branch and reference.kind != "TAG":\n',
        harm="files that somebody holds, or tagged, are deleted",
    ),
    _gc(
        name="plans that can't be read are not in flight",
        file="gc/evidence.py",
        old="if self._planned[run] in (None, replica_hash)]",
        new="if self._planned[run] == replica_hash]",
        harm="files are deleted that a sync of a newer version is about to publish",
    ),
    _gc(
        name="the grace age is ignored",
        file="gc/decide.py",
        old="old = older(part, rules.now - rules.grace)",
        new="old = older(part, rules.now)",
        harm="files are deleted that a run has just copied",
    ),
    _gc(
        name="any earlier pass will do",
        file="cleaning/passes.py",
        old="return passes[start:] if start >= 0 else []",
        new="return passes[max(start, 0) :]",
        harm="what a minute-old pass found unreachable is deleted under a query that still reads it",
    ),
    _gc(
        name="the head at the beginning of the time to keep",
        file="gc/heads.py",
        old="            yield from _versions(context, context.primary.entries(branch, commit.hash))\n"
        "            break\n",
        new="            break\n",
        harm="what readers saw at the beginning of `keep` is deleted too early",
    ),
    _gc(
        name="what was published just before the fence",
        file="gc/delete.py",
        old="                    self._reach_more(parent.hash, look=False)\n",
        new="",
        harm="files of a sync that was published a moment before are deleted",
    ),
    _gc(
        name="lists of held keys are garbage",
        file="gc/heads.py",
        old="        yield from _put(context, commit)\n        yield from _list_of(context, commit)\n",
        new="        yield from _put(context, commit)\n",
        harm="the list of what is held is deleted, and every sync compares all keys",
    ),
)
