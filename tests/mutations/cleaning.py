"""Faults in clean-ups."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.mutations.model import Mutation

_gc = partial(Mutation, component="clean-up", near=("unit/gc",), servers=("integration/gc",))

CLEAN_UP: Final = (
    _gc(
        name="holds are ignored",
        file="maintenance/deletion/references.py",
        old="            if reference.name != self.excluded_branch:\n",
        new='            if reference.name != self.excluded_branch and reference.kind != "TAG":\n',
        harm="files that somebody holds, or tagged, are deleted",
        first=("unit/gc/test_pins.py::test_what_is_held_stays_until_the_hold_is_over_and_goes_then",),
    ),
    _gc(
        name="plans that can't be read are not in flight",
        file="maintenance/gc/evidence.py",
        old="if self._planned_heads[run] in (None, replica_hash)]",
        new="if self._planned_heads[run] == replica_hash]",
        harm="files are deleted that a sync of a newer version is about to publish",
        first=("unit/gc/test_concurrent_commits.py::test_a_sync_whose_plan_can_not_be_read_is_waited_for",),
    ),
    _gc(
        name="the grace age is ignored",
        file="maintenance/gc/decide.py",
        old="old = modified_until(part, rules.now - rules.grace)",
        new="old = modified_until(part, rules.now)",
        harm="files are deleted that a run has just copied",
        first=("unit/gc/test_decide.py::test_a_file_that_is_younger_than_the_grace_stays_whatever_passes_say",),
    ),
    _gc(
        name="nothing keeps verbatim copies",
        file="maintenance/gc/scope.py",
        old="        reached.add(copies_of_localized(context.mapping, listed))\n",
        new="",
        harm="the region's address takes no commits while a home is dark",
        first=("unit/gc/test_verbatim.py::test_exactly_the_copies_of_kept_versions_stay",),
    ),
    _gc(
        name="any earlier pass will do",
        file="maintenance/deletion/passes.py",
        old="return passes[start:] if start >= 0 else []",
        new="return passes[max(start, 0) :]",
        harm="what a minute-old pass found unreachable is deleted under a query that still reads it",
        first=("unit/gc/test_files.py::test_passes_count_from_the_newest_that_is_old_enough",),
    ),
    _gc(
        name="the head at the beginning of the time to keep",
        file="maintenance/gc/retained_heads.py",
        old=("            yield from _shown_below_root(context, branch, commit.hash)\n            break\n"),
        new="            break\n",
        harm="what readers saw at the beginning of `keep` is deleted too early",
        first=("unit/gc/test_gc.py::test_what_the_head_at_the_windows_start_shows_stays_whichever_commit_put_it",),
    ),
    _gc(
        name="what was published just before the fence",
        file="maintenance/gc/scope.py",
        old=("                    for _ in range(2):\n                        self._extend_reach(parent.hash)\n"),
        new="",
        harm="files of a sync that was published a moment before are deleted",
        first=(
            "unit/gc/test_concurrent_commits.py::test_an_old_file_that_a_sync_took_up_again_before_the_deletion_stays",
        ),
    ),
    _gc(
        name="lists of held keys are garbage",
        file="maintenance/gc/retained_heads.py",
        old=(
            "        yield from below_replica_root(context, put_versions(commit))\n"
            "        yield from _held_list_versions(context, commit)\n"
        ),
        new=("        yield from below_replica_root(context, put_versions(commit))\n"),
        harm="the list of what is held is deleted, and every sync compares all keys",
        first=("unit/gc/test_held_lists.py::test_the_lists_that_kept_heads_name_stay_and_the_others_go",),
    ),
    _gc(
        name="what is committed between a listing and its deletion",
        file="maintenance/deletion/collect.py",
        old="        scope.prepare()\n        scope.catch_up()\n",
        new="        scope.prepare()\n",
        near=("unit/gc", "unit/maintenance"),
        harm="files are deleted that a tag shows since a moment ago",
        first=("unit/maintenance/test_sweep.py::test_a_tag_that_is_set_before_the_deletion_is_seen",),
    ),
    _gc(
        name="what is reached by now is recorded as unreachable",
        file="maintenance/deletion/collect.py",
        old="        remaining = tally.remaining(remaining, scope.reached)\n",
        new="",
        near=("unit/gc", "unit/maintenance"),
        harm="a later pass counts on this one for what a tag showed by then",
        first=(
            "unit/maintenance/test_sweep.py::test_what_a_tag_shows_by_then_is_not_written_down_as_garbage",
            "unit/maintenance/test_sweep.py::test_garbage_goes_in_the_second_pass_and_nothing_else",
        ),
    ),
    _gc(
        name="a sweep lists the folders of the REST address, and reaches nothing in them",
        file="maintenance/tables/referenced_files.py",
        old="swept_folders(self.context.mapping, self.near_roots)]",
        new="swept_folders(self.context.mapping)]",
        near=("unit/maintenance",),
        harm="what engines of the region wrote for `main` is deleted",
        first=("unit/maintenance/test_near.py::test_what_nothing_names_goes_in_the_second_pass_and_all_else_stays",),
    ),
    _gc(
        name="a sweep goes on under another primary",
        file="maintenance/tables/orphan_files.py",
        old="        require_same_term(self.context, self.settings.gone, self.inputs.term)\n",
        new="        pass\n",
        near=("unit/maintenance",),
        harm="an old primary deletes files that the new one shows",
        first=("unit/maintenance/test_sweep.py::test_a_promotion_between_decision_and_deletion_ends_it",),
    ),
)
