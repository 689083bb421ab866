"""Faults in plans and in publishing."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.mutations.model import Mutation

_NEAR: Final = ("unit/sync",)
_SERVERS: Final = ("integration/sync", "integration/catalog")
_plan = partial(Mutation, component="plan", near=("unit/sync/plan", *_NEAR), servers=_SERVERS)
_publish = partial(Mutation, component="publish", file="replication/sync/publish.py", near=_NEAR, servers=_SERVERS)

PLAN: Final = (
    _plan(
        name="renamed tables are forgotten",
        file="replication/plan/key_diff.py",
        old="if old is not None and old.before and old.before.kind == candidate.source.kind:",
        new="if old is not None and old.before and old.before.kind != candidate.source.kind:",
        harm="a renamed table is another table for who follows it by its id",
        first=("unit/sync/test_faults.py::test_a_renamed_table_is_not_looked_at_anew",),
    ),
    _plan(
        name="held tables are not tried again",
        file="replication/plan/branch_diff.py",
        old="retried = [key for key in (parse_key(held_key.key) for held_key in head.held) if key not in changed]",
        new="retried = [key for key in (parse_key(held_key.key) for held_key in head.held) if key in changed]",
        harm="a table whose fault is mended stays behind until somebody writes to it",
        first=("unit/sync/plan/test_in_parts.py::test_a_table_in_parts_is_published",),
    ),
    _plan(
        name="a refused table stays",
        file="replication/plan/key_diff.py",
        old=(
            "if source is None or context.registry.exclusion_reason(\n"
            "        name, context.region.name, namespace=source.kind == NAMESPACE\n"
            "    ):"
        ),
        new="if source is None:",
        harm="tables that a policy or a residency rule keeps out are replicated",
        first=("unit/sync/test_policies.py::test_a_refused_table_is_absent_and_status_says_why",),
    ),
    _plan(
        name="a recreated table is taken for the old one",
        file="replication/plan/key_diff.py",
        old="before and before.id and before.id != source.id:",
        new="before and before.id and before.kind != source.kind:",
        harm="a table that was dropped and created again keeps the id of the one that is gone",
        first=(
            "unit/sync/test_sync.py::test_a_table_dropped_and_created_again_has_another_id_and_a_changed_one_keeps_its",
        ),
    ),
    _plan(
        name="existing entries are not copied",
        file="iceberg/manifests/manifest.py",
        old='return entries.filter(pc.not_equal(entries.column("status"), DELETED))',
        new='return entries.filter(pc.equal(entries.column("status"), 1))',
        harm="data files that a rewritten manifest has are missing in the replica",
        first=("unit/sync/test_damaged.py::test_one_that_readers_have_is_an_alarm_and_repairs_alone",),
    ),
    _plan(
        name="manifests in the metadata are forgotten",
        file="replication/plan/table_files.py",
        old="inline = list(dict.fromkeys(path for snapshot in new_snapshots for path in snapshot.manifests))",
        new="inline: list[str] = []",
        harm="tables of format 1 without manifest lists come without their data",
        first=("unit/sync/test_poison_keys.py::test_inline_manifests",),
    ),
    _plan(
        name="a file that is too large counts as here",
        file="replication/plan/inventory.py",
        old='pc.not_equal(self.sizes, self.content.column("size"))',
        new='pc.less(self.sizes, self.content.column("size"))',
        harm="another file at the place of a data file is published as if it were that file",
        first=("unit/sync/plan/test_presence.py::test_what_is_here_with_its_size_is_not_copied",),
    ),
    _plan(
        name="only the newest statistics file is copied",
        file="replication/plan/table_files.py",
        old="        for file in metadata.statistics\n",
        new="        for file in metadata.statistics[-1:]\n",
        earlier=(
            "new = [item for item in metadata.statistics if (",
            "new = [item for item in metadata.statistics[-1:] if (",
        ),
        harm="statistics of older snapshots are named and not there",
        first=("unit/sync/test_strangers.py::test_every_file_of_statistics_is_copied",),
    ),
    _plan(
        name="a version without all verbatim copies proves the next one's",
        file="replication/sync/verbatim.py",
        old='if action.proven_by not in ("", *complete)}',
        new="if action.proven_by is None}",
        harm="a table counts as complete though the region's address lacks files of it while its home is dark",
        first=(
            "unit/sync/test_verbatim_proofs.py::"
            "test_a_version_that_is_published_again_is_complete_only_with_what_it_lacks",
        ),
    ),
    _plan(
        name="a region's copy of another size is sent",
        file="replication/execution/copy.py",
        old="if sizes.get(copy.source) == copy.size]",
        new="if sizes.get(copy.source) is not None]",
        harm="a region's damage is sent to others, and the origin's file only after it",
        first=("unit/sync/test_nearest_copies.py::test_a_copy_that_is_gone_or_has_another_size_is_not_sent",),
    ),
    _plan(
        name="a fallback writes over what is right for another table",
        file="replication/execution/copy.py",
        old="for key in candidates if sizes[key[1]] is None",
        new="for key in candidates",
        harm="a table is published without a file that was here",
        first=(
            "unit/sync/test_nearest_copies.py::test_a_file_that_is_right_for_one_table_is_not_written_over_for_another",
        ),
    ),
    _plan(
        name="a file comes from a region that may not have it",
        file="replication/execution/source_regions.py",
        old="if self.mapping.registry.exclusion_reason(table, region):",
        new="if not self.mapping.registry:",
        harm="what an eviction has yet to delete is sent on",
        first=("unit/sync/test_nearest_copies.py::test_a_region_that_may_not_have_a_table_is_no_source",),
    ),
    _plan(
        name="a region of the same version is a source",
        file="replication/plan/batch_sources.py",
        old="elif version and version != _source_version(mapping, shown_metadata_uri(action, changes)):",
        new="elif version:",
        harm="regions that follow in step look up at one another what neither has, with each commit",
        first=("unit/sync/test_nearest_copies.py::test_regions_that_follow_in_step_are_no_sources_of_each_other",),
    ),
)

PUBLISH: Final = (
    _publish(
        name="without the expected hash",
        old="catalog, expected = writer(context), plan.replica_hash",
        new="catalog, expected = writer(context), read_head(context.primary, branch).hash",
        harm="a plan is published over what others did meanwhile, and names files that a clean-up deleted",
        first=("unit/sync/test_faults.py::test_a_run_that_was_overtaken_is_superseded_whatever_is_left_of_it",),
    ),
    _publish(
        name="the watermark goes on before all groups are in",
        old="watermark = plan.watermark if plan.filtered or plan.more else plan.source_hash",
        new="watermark = plan.watermark if plan.filtered else plan.source_hash",
        harm="a first seed counts as complete after its first group, and the lag says zero",
        first=("unit/sync/test_sync.py::test_a_seed_comes_in_groups_and_ends_with_the_watermark",),
    ),
    _publish(
        name="a sync of some tables stands for all",
        old='properties.DIGEST: "" if plan.filtered or plan.more else plan.digest,',
        new='properties.DIGEST: "" if plan.more else plan.digest,',
        harm="after a change of the registry the other tables stay as the old one had them",
        first=(
            "unit/sync/test_registry_digest.py::"
            "test_a_sync_of_some_tables_under_another_rule_leaves_the_others_to_be_compared",
        ),
    ),
    _publish(
        name="a commit on another branch counts as main's",
        old="return all(commit.hash != plan.source_hash for commit in "
        "catalog.history(SOURCE_BRANCH, operations=False))",
        new="return False",
        harm="after a failover, what was lost there is published as if main still had it",
        first=("unit/sync/test_sync.py::test_a_plan_for_a_commit_that_a_failover_took_off_main_is_not_published",),
    ),
    _publish(
        name="what the plan held is forgotten",
        old=(
            "return resolve_dependencies(plan.actions, (*plan.held, *faults), plan.atomic_groups, held_if_failed, "
            "plan.relaxed)"
        ),
        new=(
            "return resolve_dependencies(plan.actions, tuple(faults), plan.atomic_groups, held_if_failed, plan.relaxed)"
        ),
        harm="held tables leave the list: nobody is told, and they are never tried again",
        first=("unit/sync/plan/test_in_parts.py::test_a_table_in_parts_is_published",),
    ),
)
