from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_train.engines.prefixes import common_prefixes


def test_members_of_a_group_share_their_prompt():
    first, second = (1,) * 9, (2,) * 9
    prompts = [(*first, 5), (*second, 5), (*first, 6, 7), (*second, 8)]
    prefixes, family = common_prefixes(prompts)
    assert [prefixes[number] for number in family] == [first, second, first, second]


def test_one_prompt_may_begin_another():
    prompts = [(1, 2, 3, 4), (1, 2, 3)]
    prefixes, family = common_prefixes(prompts)
    assert [prefixes[number] for number in family] == [(1, 2), (1, 2)]  # each keeps a token of its own


def test_prompts_that_share_little_are_computed_in_one_piece():
    assert common_prefixes([(1, 2, 3, 4, 5), (1, 7, 8, 9, 9)]) == ([()], [0, 0])
    assert common_prefixes([(1, 2, 3)]) == ([()], [0])


@settings(max_examples=200, deadline=None)
@given(prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8).map(tuple), min_size=1, unique=True))
def test_every_prompt_begins_with_its_prefix_and_has_a_rest(prompts):
    prefixes, family = common_prefixes(prompts)
    for prompt, number in zip(prompts, family, strict=True):
        prefix = prefixes[number]
        assert prompt[: len(prefix)] == prefix
        assert len(prefix) < len(prompt)


def computed(prompts, prefixes, family):
    """Tokens of the prefixes and of what is left of the prompts."""
    return sum(map(len, prefixes)) + sum(len(p) - len(prefixes[n]) for p, n in zip(prompts, family, strict=True))


@settings(max_examples=200, deadline=None)
@given(
    groups=st.lists(
        st.tuples(st.integers(1, 12), st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), min_size=2)),
        min_size=1,
        max_size=4,
    )
)
def test_no_more_is_computed_than_with_each_group_s_prompt_once(groups):
    """Whatever the members have said since: a third turn is as good as the first."""
    prompts, once = set(), 0
    for number, (length, members) in enumerate(groups):
        opening = (9, 8, 7, *([number + 10] * length))
        rests = {tuple(member) for member in members}
        prompts |= {opening + rest for rest in rests}
        once += len(opening) + sum(map(len, rests))
    prompts = sorted(prompts, key=hash)
    found = computed(prompts, *common_prefixes(prompts))
    assert found <= once or found == sum(map(len, prompts)) <= once * 8 / 7 + 1


def test_long_conversations_still_share_their_first_prompt():
    opening, others = (1,) * 30, (2,) * 30
    prompts = [(*first, 3 + member, *[5] * 100) for first in (opening, others) for member in range(6)]
    prefixes, family = common_prefixes(prompts)
    assert [prefixes[number] for number in family] == [opening] * 6 + [others] * 6
