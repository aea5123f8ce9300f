import copy
import json
import os
import pickle
from multiprocessing import reduction

import gymnasium as gym
import pytest
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Dict, Discrete, Text
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_envs import HOSTILE, SINGLE

from corrgrpo_envs import Chat, Unicode

TEXT = st.text(st.characters(), max_size=30)  # every code point, lone surrogates too
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": TEXT})


def chat(*contents):
    return tuple({"role": "user", "content": content} for content in contents)


@given(TEXT)
def test_every_text_is_unicode(text):
    assert text in Unicode()
    assert (text in Unicode(5)) == (len(text) <= 5)


@pytest.mark.parametrize("thing", [None, 1, b"x", ["x"], ("x",), {}])
def test_what_is_not_unicode(thing):
    assert thing not in Unicode()
    assert thing not in Chat()


@given(st.lists(MESSAGE, max_size=5))
@settings(max_examples=50)
def test_every_conversation_is_a_chat(messages):
    space = Chat()
    assert tuple(messages) in space
    assert list(messages) not in space
    assert super(Chat, space).contains(tuple(messages))  # the quick check and Gymnasium's own agree


@pytest.mark.parametrize(
    "message",
    [
        "text",
        {},
        {"role": "user"},
        {"content": "x"},
        {"role": "user", "content": None},
        {"role": 1, "content": "x"},
        {"role": "user", "content": "x", "name": "y"},
        {"role": "r" * 65, "content": "x"},
        None,
    ],
)
def test_what_is_not_a_chat(message):
    space = Chat()
    assert (message,) not in space
    assert not super(Chat, space).contains((message,))


def test_samples_are_short_reproducible_and_contained():
    for space in (Unicode(), Unicode(3), Chat()):
        space.seed(4)
        samples = [space.sample() for _ in range(50)]
        assert all(sample in space for sample in samples)
        space.seed(4)
        assert samples == [space.sample() for _ in range(50)]
        assert len(set(map(str, samples))) > 10
        assert sum(len(str(sample)) for sample in samples) < 50_000
    assert all(sample.isascii() for sample in [Unicode(seed=1).sample() for _ in range(50)])


def test_a_mask_is_refused():
    with pytest.raises(ValueError, match="neither mask nor probability"):
        Unicode().sample(mask=(3, None))


def test_equality_repr_copies():
    assert Unicode() == Unicode()
    assert Unicode(3) != Unicode()
    assert Unicode(5) != Text(5, min_length=0)
    assert Text(5, min_length=0) != Unicode(5)
    assert Chat() == Chat()
    assert (repr(Unicode()), repr(Unicode(3)), repr(Chat())) == ("Unicode()", "Unicode(3)", "Chat()")
    for space in (Unicode(7), Chat(), Dict(messages=Chat(), tools=Unicode())):
        space.seed(1)
        for twin in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
            assert twin == space
            assert twin.sample() == copy.deepcopy(space).sample()


def test_json_round_trip():
    conversations = [chat("a", "é\x00"), (), chat("\ud800")]
    space = Chat()
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(conversations)))) == conversations
    assert Unicode().from_jsonable(Unicode().to_jsonable(list(HOSTILE))) == list(HOSTILE)


@pytest.mark.parametrize("space", [Unicode(), Chat(), Dict(messages=Chat(), tools=Unicode())], ids=str)
def test_flattening_is_refused_at_once(space):
    packed = {"messages": 0, "tools": 0} if isinstance(space, Dict) else 0
    for function in (flatten_space, lambda s: flatten(s, s.sample()), lambda s: unflatten(s, packed)):
        with pytest.raises(ValueError, match="can't be flattened"):
            function(space)
    with pytest.raises(ValueError, match=r"can't be flattened|cannot be flattened"):
        flatdim(space)
    assert not space.is_np_flattenable


def test_flattening_wrapper_raises():
    with pytest.raises(ValueError, match="can't be flattened"):
        gym.wrappers.FlattenObservation(gym.make(SINGLE))


def test_batching():
    for space, items in ((Unicode(), ("a", "\ud800", "")), (Chat(), (chat("a"), (), chat("b", "c")))):
        batch = batch_space(space, 3)
        assert items in batch
        assert tuple(iterate(batch, items)) == items
        assert concatenate(space, items, create_empty_array(space, 3)) == items
        assert items in batch_differing_spaces([space, type(space)(), type(space)()])


@given(st.lists(st.lists(MESSAGE, max_size=4).map(tuple), min_size=1, max_size=4))
@settings(max_examples=50)
def test_shared_memory_returns_what_was_written(conversations):
    space, n = Chat(), len(conversations)
    memory = create_shared_memory(space, n)
    view = read_from_shared_memory(space, memory, n)
    assert tuple(view) == ((),) * n
    for _ in range(2):
        for i, conversation in enumerate(conversations):
            write_to_shared_memory(space, i, conversation, memory)
        assert tuple(view) == copy.deepcopy(view) == tuple(conversations)
        conversations = conversations[::-1]
    assert view[-1] == view[n - 1]


def test_shared_memory_of_texts():
    memory = create_shared_memory(Unicode(), len(HOSTILE))
    view = read_from_shared_memory(Unicode(), memory, len(HOSTILE))
    assert list(view) == [""] * len(HOSTILE)
    for i, text in enumerate(HOSTILE):
        write_to_shared_memory(Unicode(), i, text, memory)
    assert tuple(view) == HOSTILE
    write_to_shared_memory(Unicode(), 0, "x" * 3_000_000, memory)
    assert (len(view[0]), view[1]) == (3_000_000, HOSTILE[1])
    write_to_shared_memory(Unicode(), 0, "short", memory)
    assert view[0] == "short"
    with pytest.raises(IndexError):
        view[len(HOSTILE)]


def test_descriptors_are_given_back():
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc here")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        create_shared_memory(Dict(messages=Chat(), tools=Unicode()), 4)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_without_memfd_a_nameless_file_serves(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    memory = create_shared_memory(Chat(), 3)
    write_to_shared_memory(Chat(), 2, chat("last"), memory)
    assert read_from_shared_memory(Chat(), memory, 3)[2] == chat("last")


def test_where_descriptors_cannot_be_inherited_gymnasium_gives_its_hint(monkeypatch):
    monkeypatch.delattr(reduction, "DupFd")
    with pytest.raises(CustomSpaceError, match="shared_memory=False"):
        create_shared_memory(Chat(), 2)
    with pytest.raises(ValueError, match="shared_memory"):
        gym.make_vec(SINGLE, 2, "async")


def test_gymnasiums_own_spaces_are_untouched():
    memory = create_shared_memory(Text(4, min_length=0), 2)
    write_to_shared_memory(Text(4, min_length=0), 1, "ab", memory)
    assert read_from_shared_memory(Text(4, min_length=0), memory, 2)[1] == "ab"
    assert flatdim(Discrete(3)) == 3
