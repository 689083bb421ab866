"""Faults in `wap` and in change capture."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.mutations.model import Mutation

_WRITE_SEGMENT: Final = """        self._write_segment(
            buffer,
            Segment(
                self._spec.id,
                self._next_number(),
                position["partition"],
                position["offset"],
                complete=self._is_initial_snapshot(),
            ),
        )
"""
_CONFIRM: Final = """        engine.confirm(position["n"])
"""
_wap = partial(
    Mutation,
    component="wap",
    near=("unit/publish", "simulation/test_wap.py"),
    servers=("integration/publish", "integration/transforms"),
)
_cdc = partial(Mutation, component="change capture", near=("unit/cdc",), servers=("integration/cdc",))

WAP: Final = (
    _wap(
        name="the position is not compared",
        file="pipelines/publish/decide.py",
        old=("    if position == step.previous:\n        return\n"),
        new=("    if position == step.previous or not step.is_numbered:\n        return\n"),
        harm="a step is published that was made for another state, and changes are applied twice or skipped",
        first=("unit/publish/test_decide.py",),
    ),
    _wap(
        name="fast forward from any ancestor",
        file="pipelines/publish/decide.py",
        old="if snapshot.parent == state.current:",
        new="if snapshot.parent in ancestor_ids:",
        harm="what others committed meanwhile is rolled back",
        first=("unit/publish/test_decide.py",),
    ),
    _wap(
        name="a MERGE is appended",
        file="pipelines/publish/decide.py",
        old="if not step.is_snapshot_bound and is_append(candidate)]",
        new="if is_append(candidate)]",
        harm="rows that were computed from an older state are published on a newer one",
        first=("unit/publish/test_decide.py",),
    ),
    _wap(
        name="what is staged again is not audited",
        file="pipelines/publish/protocol.py",
        old="if change.snapshot not in self._audited and not isinstance(change, PositionOnly):",
        new="if not self._audited and not isinstance(change, PositionOnly):",
        harm="rows that break an audit's rules are published at the second try",
        first=("unit/publish/test_protocol.py",),
    ),
    _wap(
        name="what was cherry-picked counts as unpublished",
        file="pipelines/publish/decide.py",
        old="for snapshot in state.ancestors if step.id in (snapshot.wap_id, snapshot.published_wap_id)), None",
        new="for snapshot in state.ancestors if step.id == snapshot.wap_id), None",
        harm="a batch that somebody published by hand is published twice",
        first=("unit/publish/test_decide.py",),
    ),
    _wap(
        name="a rollback to the position's own number",
        file="pipelines/publish/decide.py",
        old="return is_first or 0 < oldest.sequence <= int(sequence)",
        new="return is_first or 0 < oldest.sequence < int(sequence)",
        harm="a table that was rolled back counts as whole: its lost rows are never put there again",
        first=("unit/publish/test_decide.py",),
    ),
)

CDC: Final = (
    _cdc(
        name="the order of changes is turned round",
        file="pipelines/cdc/apply.py",
        old="order = rows[SEQUENCE]",
        new="order = pc.negate(rows[SEQUENCE])",
        harm="of several changes of one row, the first wins",
        first=("unit/cdc/test_merge.py",),
    ),
    _cdc(
        name="the order of segments is ignored",
        file="pipelines/cdc/apply.py",
        old="pc.add(table[SEQUENCE], sequence(number, 0))",
        new="pc.add(table[SEQUENCE], sequence(0, 0))",
        harm="a row that changed in two drops of one step has its older value",
        first=(
            "unit/cdc/test_files_of_drops.py::"
            "test_rows_of_a_later_drop_come_after_those_of_an_earlier_one_wherever_a_reader_began_to_count",
        ),
    ),
    _cdc(
        name="a segment is cut within a transaction",
        file="pipelines/cdc/change_buffer.py",
        old='self.in_transaction = event["status"] == "BEGIN" and not self.schemas',
        new='self.in_transaction = event["status"] == "BEGIN" and bool(self.schemas)',
        harm="half of a transaction is published",
        first=(
            "unit/cdc/test_edges_of_cdc.py::test_a_drop_goes_on_behind_its_last_transaction",
            "unit/cdc/test_transactions_of_logs.py",
        ),
    ),
    _cdc(
        name="a position of an older capture counts",
        file="pipelines/cdc/plan.py",
        old="applied_number = applied if applied_id == capture_id else 0",
        new="applied_number = applied",
        harm="after a resync, the first rows of the table are skipped",
        first=("unit/cdc/test_plan.py",),
    ),
    _cdc(
        name="an empty table keeps the rows of the reading before",
        file="pipelines/cdc/plan.py",
        old="            if has_more or is_empty\n",
        new="            if has_more or is_empty or not selected\n",
        harm="rows stay that are gone at the source",
        first=("unit/cdc/test_plan.py",),
    ),
    _cdc(
        name="confirmed before it is durable",
        file="pipelines/cdc/capture.py",
        old=f"{_WRITE_SEGMENT}{_CONFIRM}",
        new=f"{_CONFIRM}{_WRITE_SEGMENT}",
        harm="a reader that dies at this moment loses transactions",
        first=("unit/cdc/test_edges_of_cdc.py::test_a_drop_that_can_not_be_written_is_not_confirmed",),
    ),
    _cdc(
        name="a reader goes on after a resync",
        file="pipelines/cdc/capture.py",
        old="if self.journal.latest_capture_id() != segment.capture_id or not self.journal.commit_segment(segment):",
        new="if not self.journal.commit_segment(segment):",
        harm="rows go to a reading that nobody applies any more",
        first=(
            "unit/cdc/test_edges_of_cdc.py::test_a_reader_of_an_epoch_that_is_over_adds_no_drop_and_confirms_nothing",
        ),
    ),
    _cdc(
        name="long bytes that were not told are written",
        file="pipelines/cdc/types.py",
        old="placeholders = (placeholder, base64.b64encode(placeholder.encode()).decode(), pair)",
        new="placeholders = (placeholder, pair)",
        harm="a long binary value that was not changed is replaced by the engine's placeholder",
        first=(
            "unit/cdc/test_edges_of_cdc.py::test_a_value_that_is_not_told_is_known_in_each_form",
            "unit/cdc/test_values.py",
        ),
    ),
    _cdc(
        name="a deletion of a row that was never seen",
        file="pipelines/cdc/apply.py",
        old="WHEN NOT MATCHED AND NOT s.{_KEY_ONLY} AND s.{OPERATION} = 'u' THEN INSERT",
        new="WHEN NOT MATCHED AND NOT s.{_KEY_ONLY} THEN INSERT",
        harm="rows that were added and deleted within a step come as rows of nulls",
        first=("unit/cdc/test_merge.py",),
    ),
)
