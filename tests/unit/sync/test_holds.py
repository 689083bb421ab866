"""What goes ahead when something is held."""

from sterna.catalog.model import ICEBERG_TABLE, NAMESPACE
from sterna.replication.plan.dependencies import merge_groups, resolve_dependencies
from sterna.replication.replica.held import IN_TRANSIT, Held
from sterna.replication.replica.model import Action


def put(key: str, **fields) -> Action:
    return Action(key, ICEBERG_TABLE, "put", **fields)


def drop(key: str, kind: str = ICEBERG_TABLE) -> Action:
    return Action(key, kind, "drop")


def fault(key: str) -> Held:
    return Held(key, "Unsupported", "no", since="2026-01-01T00:00:00+00:00")


def run(actions, held=(), together=(), relaxed=()):
    templates = {
        action.key: Held(action.key, "", "", since="2026-01-02T00:00:00+00:00", good="w") for action in actions
    }
    return resolve_dependencies(tuple(actions), tuple(held), tuple(together), templates, relaxed)


def test_everything_goes_when_nothing_is_held():
    settled = run([put("a"), drop("b")], together=[("a", "b")])
    assert [action.key for action in settled.actions] == ["a", "b"]
    assert settled.held == ()


def test_what_was_committed_together_with_a_held_table_waits_for_it():
    settled = run([put("b"), put("c")], held=[fault("a")], together=[("a", "b")])
    assert [action.key for action in settled.actions] == ["c"]
    assert [(item.key, item.waits_for, item.good) for item in settled.held] == [("a", "", ""), ("b", "a", "w")]


def test_a_renamed_table_and_its_old_name_move_together_or_not_at_all():
    settled = run([put("new", renamed_from="old"), drop("old")], held=[fault("new")])
    assert settled.actions == ()
    assert {item.key: item.waits_for for item in settled.held} == {"new": "", "old": "new"}


def test_a_namespace_stays_while_a_table_in_it_has_to():
    settled = run([drop("ns", NAMESPACE), drop("ns.t"), put("x")], held=[fault("x")], together=[("ns.t", "x")])
    assert settled.actions == ()
    assert {item.key: item.waits_for for item in settled.held} == {"ns": "ns.t", "ns.t": "x", "x": ""}


def test_a_neighbour_with_the_same_beginning_does_not_keep_a_namespace():
    settled = run([drop("ns", NAMESPACE), drop("nst.t")], held=[fault("x")], together=[("nst.t", "x")])
    assert [action.key for action in settled.actions] == ["ns"]


def test_groups_that_share_a_table_are_one():
    assert merge_groups([{"a", "b"}, {"c", "d"}, {"b", "c"}, {"x", "y"}]) == (("a", "b", "c", "d"), ("x", "y"))


def test_all_faults_of_a_group_are_remembered_as_one():
    settled = run([put("c")], held=[fault("a"), fault("b")], together=[("a", "b", "c")])
    assert {item.key: item.group for item in settled.held} == {"a": "a", "b": "a", "c": "a"}


def test_a_fault_of_its_own_moves_alone():
    settled = run([put("c")], held=[fault("a")])
    assert [(item.key, item.group) for item in settled.held] == [("a", "")]


def going(settled) -> list[str]:
    return [action.key for action in settled.actions]


def test_a_relaxed_table_goes_on_while_strict_ones_wait():
    settled = run([put("b"), put("r")], held=[fault("a")], together=[("a", "b", "r")], relaxed=["r"])
    assert going(settled) == ["r"]
    assert {item.key: item.waits_for for item in settled.held} == {"a": "", "b": "a"}


def moving(key: str) -> Held:
    return Held(key, IN_TRANSIT, "it comes", since="2026-01-01T00:00:00+00:00", bytes=9)


def test_what_can_t_be_published_for_another_s_fault_is_not_brought():
    settled = run([put("a"), put("b")], held=[fault("a"), moving("b")], together=[("a", "b")])
    assert [(item.key, item.kind, item.waits_for, item.bytes) for item in settled.held] == [
        ("a", "Unsupported", "", 0),
        ("b", "Waits", "a", 9),
    ]


def test_a_relaxed_table_is_brought_whatever_the_others_faults():
    settled = run([put("a"), put("b")], held=[fault("a"), moving("b")], together=[("a", "b")], relaxed={"b"})
    assert [(item.key, item.kind, item.bytes) for item in settled.held] == [
        ("a", "Unsupported", 0),
        ("b", IN_TRANSIT, 9),
    ]


def test_a_strict_table_waits_for_a_relaxed_one_that_is_held():
    settled = run([put("b"), put("r")], held=[fault("q")], together=[("b", "q", "r")], relaxed=["q", "r"])
    assert going(settled) == ["r"]
    assert {item.key: item.waits_for for item in settled.held} == {"q": "", "b": "q"}


def test_a_relaxed_table_that_is_well_joins_no_two_commits():
    settled = run([put("b"), put("r")], held=[fault("a")], together=[("a", "r"), ("b", "r")], relaxed=["r"])
    assert going(settled) == ["b", "r"]


def test_a_relaxed_table_alone_with_relaxed_ones():
    assert going(run([put("r")], held=[fault("q")], together=[("q", "r")], relaxed=["q", "r"])) == ["r"]
    assert going(run([put("q"), put("r")], together=[("q", "r")], relaxed=["q", "r"])) == ["q", "r"]


def test_a_renamed_relaxed_table_never_goes_without_its_old_name():
    settled = run([put("r", renamed_from="old"), drop("old")], held=[fault("r")], relaxed=["r", "old"])
    assert going(settled) == []


def test_what_waited_for_a_relaxed_table_stays_together_when_that_is_well():
    first = run([put("b"), put("c")], held=[fault("a")], together=[("a", "b", "c")], relaxed=["a"])
    (group,) = {item.group for item in first.held}
    assert group == "b", "a strict one: a relaxed one that is well holds nothing together"
    remembered = [(item.key, item.group) for item in first.held if item.key != item.group]
    again = run([put("a"), put("b")], held=[fault("c")], together=remembered, relaxed=["a"])
    assert going(again) == ["a"]
    assert {item.key for item in again.held} == {"b", "c"}
