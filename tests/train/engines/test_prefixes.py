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
