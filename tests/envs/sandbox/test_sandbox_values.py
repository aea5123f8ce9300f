"""Values on the wire: what is carried comes back equal and of the same type; all else is refused."""

import collections
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_envs.sandbox.inside.decoder import Decoder
from corrgrpo_envs.sandbox.inside.edits import update
from corrgrpo_envs.sandbox.inside.encoder import Encoder
from corrgrpo_envs.sandbox.inside.values import Bounds, MalformedError, TooLargeError, UnsupportedError, node_classes


class ListNode:
    def __init__(self, val: int = 0, next: "ListNode | None" = None) -> None:
        self.val, self.next = val, next


class TreeNode:
    def __init__(self, val: int = 0, left: "TreeNode | None" = None, right: "TreeNode | None" = None) -> None:
        self.val, self.left, self.right = val, left, right


CLASSES = node_classes(globals())


def sent(value: Any, bounds: Bounds | None = None) -> Any:
    bounds = bounds or Bounds()
    return Decoder(CLASSES, [], bounds).document(Encoder(CLASSES, [], bounds).document(value))


def same(one: Any, other: Any) -> bool:
    """Equality of types and content, all the way down; nan equals nan, 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


keys = st.none() | st.booleans() | st.integers() | st.text(st.characters()) | st.binary(max_size=8)
values = st.recursive(
    keys | st.floats(allow_nan=True) | st.integers(min_value=1 << 2000, max_value=1 << 2001),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=4)
        | st.frozensets(keys, max_size=4)
        | st.sets(keys, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(values)
def test_values_come_back_as_they_were(value: Any) -> None:
    assert same(sent(value), value)


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        math.inf,
        -math.inf,
        10**6000,
        -(10**6000),
        "\ud800",
        "\ud83d\ude00",  # two lone halves, which must not become one character
        "\U0001f600",
        collections.deque([1, [2]]),
        range(3, 9, 2),
        1 + 2j,
        bytearray(b"x"),
        {(1, "a"): {2: None}},
        [True, 1, 1.0],
        [[]] * 3,
    ],
    ids=lambda value: type(value).__name__,
)
def test_single_values(value: Any) -> None:
    assert same(sent(value), value)


@pytest.mark.parametrize("kind", [collections.Counter, collections.OrderedDict, lambda: collections.defaultdict(int)])
def test_kinds_of_dict_become_dicts(kind: Any) -> None:
    value = kind()
    value["a"] = 1
    assert same(sent(value), {"a": 1})


def test_sets_are_written_in_one_order() -> None:
    ours, theirs = set(), set()
    for item in range(1000):
        ours.add(item * 7919)
    for item in reversed(range(1000)):
        theirs.add(item * 7919)
    assert Encoder({}, [], Bounds()).text(ours) == Encoder({}, [], Bounds()).text(theirs)


def test_lists_of_nodes_share_and_cycle() -> None:
    tail = ListNode(3)
    tail.next = tail
    first, second = sent([ListNode(1, tail), ListNode(2, tail)])
    assert (first.val, second.val) == (1, 2)
    assert first.next is second.next
    assert first.next.next is first.next


def test_long_list_of_nodes_is_no_deep_value() -> None:
    head = None
    for value in range(50_000):
        head = ListNode(value, head)
    node, count = sent(head), 0
    while node:
        node, count = node.next, count + 1
    assert count == 50_000


def test_trees() -> None:
    tree = sent(TreeNode(1, TreeNode(2), TreeNode(3, None, TreeNode(4))))
    assert (tree.left.val, tree.right.right.val, tree.left.left) == (2, 4, None)


class Text(str):
    pass


@pytest.mark.parametrize("value", [object(), Text("x"), [Text("x")], {1: Text("x")}, iter([]), int, len, {Text("x")}])
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(UnsupportedError):
        sent(value)


def test_limits() -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    for value, bounds in (
        (deep, Bounds()),
        ([[0] * 100] * 100, Bounds(nodes=5000)),
        ("x" * 10_000, Bounds(size=5000)),
        ("x" * 100_000, Bounds(nodes=1000)),
        (1 << 10_000_000, Bounds(nodes=1000)),
    ):
        with pytest.raises(TooLargeError):
            sent(value, bounds)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"nan",
        b"NaN",
        b"Infinity",
        b'{"x":1}',
        b'{"i":5}',
        b'{"i":"zz"}',
        b'{"f":"1.0"}',
        b'{"t":1}',
        b'{"s":[[1]]}',
        b'{"s":[{"s":[]}]}',
        b'{"d":[[1]]}',
        b'{"d":[[[],1]]}',
        b'{"n":0}',
        b'{"n":-1}',
        b'{"n":true}',
        b'{"u":[-1]}',
        b'{"u":[1114112]}',
        b'{"r":[1,2,0]}',
        b'{"r":[1.5,2,3]}',
        b'{"c":["1j",2.0]}',
        b'{"b":"0"}',
        b'{"t":[],"s":[]}',
        b"1 2",
        b"\xff",
        b"[" * 100_000,
        b'{"t":[' * 50_000,
        b"9" * 5000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_rubbish_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedError):
        Decoder({}, [], Bounds()).value(text)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text('[]{}",:01tsdniu-.e \n', max_size=60).map(str.encode))
def test_decoding_anything_gives_a_value_or_refuses(text: bytes) -> None:
    try:
        Decoder(CLASSES, [], Bounds()).document(text)
    except MalformedError:
        return
    Decoder(CLASSES, [], Bounds()).document(text)


def test_too_many_elements_are_refused_before_they_are_built() -> None:
    with pytest.raises(MalformedError, match="elements"):
        Decoder({}, [], Bounds(nodes=1000)).value(b"[" + b"[]," * 10_000 + b"0]")


@pytest.mark.parametrize("name", ["__class__", "__dict__", "value", 5])
def test_only_fields_of_nodes_are_set(name: Any) -> None:
    document = b'["ListNode"]\n' + repr([[[name, 1]]]).replace("'", '"').encode() + b"\n" + b'{"n":0}'
    with pytest.raises(MalformedError):
        Decoder(CLASSES, [], Bounds()).document(document)


@settings(max_examples=60, deadline=None)
@given(values, values)
def test_update_makes_lists_equal_in_place(old: Any, new: Any) -> None:
    holder, again = [sent(old)], [sent(new)]
    update(holder, again)
    assert same(holder, [sent(new)])


def test_update_keeps_inner_containers() -> None:
    row, table = [1, 2], {"a": [1]}
    grid = [row, table, 5]
    inner = table["a"]
    update(grid, [[9], {"a": [2, 3], "b": 1}, 6, 7])
    assert grid == [[9], {"a": [2, 3], "b": 1}, 6, 7]
    assert grid[0] is row
    assert table["a"] is inner == [2, 3]
