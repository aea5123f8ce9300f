"""Which groups a step trains on, and the length penalty, with an engine that says what the test wants."""

import math

import pytest
import rollout_envs  # noqa: F401  (registers the environments)

from corrgrpo_train.engines import Completion
from corrgrpo_train.errors import UsageError
from corrgrpo_train.rollout import Chat, Episode, Limits, TokenSequence
from corrgrpo_train.rollout.dynamic_sampling import GroupChoice, differs, rollout_groups
from corrgrpo_train.rollout.groups import GroupSampler
from corrgrpo_train.rollout.overlong import OverlongPenalty

LIMITS = Limits(40, 4000)


class Scripted:
    """Answers by group number and member; "e" is worth 1 + 0.5, "eeee" 1 (letters 1, not short)."""

    def __init__(self, tokenizer, answer):
        self.tokenizer, self.answer, self.keys = tokenizer, answer, []

    def generate(self, requests, *, temperature):
        self.keys += [request.key for request in requests]
        made = []
        for request in requests:
            tokens = tuple(self.tokenizer.encode(self.answer(*request.key[2:4])))
            made.append(Completion(tokens, (-1.0,) * len(tokens), True))
        return made

    def update_weights(self):
        pass


def rolled_out(tiny, answer, choice, *, penalty=None, groups=3, size=4, env="rollout/Toy-v0", position=0, **env_args):
    _, tokenizer = tiny
    engine = Scripted(tokenizer, answer)
    sampler = GroupSampler(
        env, env_args, Chat(tokenizer), groups=groups, group_size=size, max_prompt_tokens=999, seed=1
    )
    sampler.position = position
    result = rollout_groups(sampler, engine, LIMITS, temperature=1.0, key=(7, 3), choice=choice, penalty=penalty)
    sampler.close()
    return result, engine, sampler


def numbers(result):
    return list(dict.fromkeys(episode.group for episode in result.episodes))


def mixed(groups):
    """Groups of these numbers differ, the others don't."""
    return lambda group, member: "eeee" if group not in groups or member % 2 else "e"


def test_without_a_choice_every_group_is_kept(tiny):
    result, engine, sampler = rolled_out(tiny, mixed([]), GroupChoice())
    assert numbers(result) == [0, 1, 2]
    assert result.counts == {}
    assert sampler.position == 3
    assert len(engine.keys) == 12


def test_groups_without_differences_are_replaced_until_there_are_enough(tiny):
    # 0, 1, 2 are drawn first; then two in place of 0 and 2, then one in place of 4.
    result, engine, sampler = rolled_out(tiny, mixed([1, 3, 5]), GroupChoice("reward", 10))
    assert numbers(result) == [1, 3, 5]
    assert result.counts == {
        "groups/drawn": 6,
        "groups/kept": 3,
        "groups/uniform": 3,
        "groups/filled": 0,
        "groups/rollouts": 3,
    }
    assert sampler.position == 6
    assert len({key[2:4] for key in engine.keys}) == 24  # no sequence shares its random numbers with another
    order = [sampler.start_at(position).label for position in range(6)]
    tasks = [e.task_id for e in result.episodes]
    assert tasks == [order[i] for i in (1, 3, 5) for _ in range(4)]


def test_attempts_are_limited_and_the_newest_groups_fill(tiny):
    result, _, sampler = rolled_out(tiny, mixed([4]), GroupChoice("reward", 2))
    # Attempt 1: 0, 1, 2; attempt 2: 3, 4, 5; of the equal ones 3 and 5 are the newest.
    assert numbers(result) == [4, 3, 5]
    assert len(result.episodes) == 12
    assert result.counts["groups/kept"] == 1
    assert result.counts["groups/filled"] == 2
    assert sampler.position == 6


def test_a_component_decides_where_it_is_named(tiny):
    # "e" and "eee": both short, letters 1. "e" and "eeee" differ in "short" alone.
    answer = lambda group, member: "e" if member % 2 else ("eee", "eeee")[group % 2]  # noqa: E731
    assert numbers(rolled_out(tiny, answer, GroupChoice("short", 4))[0]) == [1, 3, 5]
    result, _, _ = rolled_out(tiny, answer, GroupChoice("letters", 2))
    assert result.counts["groups/kept"] == 0


def test_the_position_is_the_whole_state(tiny):
    """Drawn from a later position, the next step is what it would have been."""
    choice = GroupChoice("reward", 10)
    first, _, sampler = rolled_out(tiny, mixed([1, 3, 5]), choice)
    again, _, _ = rolled_out(tiny, mixed([1, 3, 5]), choice)
    assert [e.task_id for e in first.episodes] == [e.task_id for e in again.episodes]
    later, _, other = rolled_out(tiny, mixed([0, 1, 2]), choice, position=sampler.position)
    assert [e.task_id for e in later.episodes[::4]] == [other.start_at(p).label for p in (6, 7, 8)]


def test_an_unknown_component_is_named(tiny):
    with pytest.raises(UsageError, match=r"'lettres' is unknown; allowed: 'reward', 'letters', 'short'"):
        rolled_out(tiny, mixed([]), GroupChoice("lettres", 3))


def test_failed_groups_never_differ_and_end_with_the_attempts(tiny):
    result, _, _ = rolled_out(
        tiny, mixed([0, 1, 2, 3]), GroupChoice("reward", 3), env="rollout/Failing-v0", fail="always"
    )
    assert result.counts["groups/kept"] == 0
    assert result.counts["groups/rollouts"] == 3
    assert len(result.episodes) == 12


def episode(value, weight=1.0, tokens=1):
    sequence = TokenSequence([1] * (3 + tokens), [False] * 3 + [True] * tokens, [0.0] * (3 + tokens))
    return Episode(0, 0, "t", sequence, {"a": value}, {"a": weight}, value * weight)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.3, 0.3, 0.3], False),
        ([0.1 + 0.2, 0.3, 0.3], False),  # equal but for the last bit
        ([0.3, 0.3001], True),
        ([0.0, 0.0], False),
        ([1.0], False),
        ([], False),
        ([math.nan, 1.0, 1.0], False),
        ([math.nan, 1.0, 2.0], True),
    ],
)
def test_what_counts_as_a_difference(values, expected):
    assert differs([episode(value) for value in values], "a") == expected
    assert differs([episode(value) for value in values], "reward") == expected


def test_a_component_of_weight_zero_may_decide_alone():
    group = [episode(0.0, weight=0.0), episode(1.0, weight=0.0), episode(math.nan, weight=0.0)]
    assert differs(group, "a")
    assert not differs(group, "reward")


# ---- the length penalty ----------------------------------------------------------------------------------


def test_the_penalty_is_the_papers():
    """DAPO: L_max 16384 + 4096 tokens, of which the last 4096 are the buffer."""
    penalty = OverlongPenalty.made("overlong", weight=1.0, length=20480, share=0.2)
    expected = {1: 0, 16384: 0, 16385: -1 / 4096, 18432: -0.5, 20479: -4095 / 4096, 20480: -1, 30000: -1}
    for tokens, value in expected.items():
        assert penalty.value(tokens) == pytest.approx(value, abs=1e-12), tokens
    assert (penalty.component.low, penalty.component.high) == (-1.0, 0.0)
    whole = OverlongPenalty.made("overlong", weight=1.0, length=10, share=1.0)
    assert [whole.value(tokens) for tokens in (0, 5, 10)] == [0.0, -0.5, -1.0]


def test_the_penalty_joins_components_weights_and_reward(tiny):
    penalty = OverlongPenalty.made("overlong", weight=0.5, length=10, share=0.5)
    answer = lambda group, member: "e" * (2 + 2 * member)  # noqa: E731
    result, _, _ = rolled_out(tiny, answer, GroupChoice(), penalty=penalty)
    for one in result.episodes:
        length = one.tokens.completion_length
        assert length == 2 + 2 * one.member
        assert list(one.components) == ["letters", "short", "overlong"]
        assert one.components["overlong"] == pytest.approx({2: 0, 4: 0, 6: -0.2, 8: -0.6}[length])
        assert one.weights == {"letters": 1.0, "short": 0.5, "overlong": 0.5}
        assert one.reward == pytest.approx(sum(one.weights[name] * value for name, value in one.components.items()))


def test_the_penalty_counts_among_the_differences(tiny):
    penalty = OverlongPenalty.made("overlong", weight=0.5, length=10, share=0.5)
    answer = lambda group, member: "e" * (4 + 4 * (member % 2))  # noqa: E731
    result, _, _ = rolled_out(tiny, answer, GroupChoice("overlong", 2), penalty=penalty)
    assert result.counts["groups/kept"] == 3
    assert rolled_out(tiny, answer, GroupChoice("letters", 2), penalty=penalty)[0].counts["groups/kept"] == 0


def test_failed_episodes_get_no_penalty(tiny):
    penalty = OverlongPenalty.made("overlong", weight=0.5, length=10, share=0.5)
    result, _, _ = rolled_out(tiny, mixed([]), GroupChoice(), penalty=penalty, env="rollout/Failing-v0", fail="always")
    assert all(one.components == {} and math.isnan(one.reward) for one in result.episodes)


def test_a_component_of_the_same_name_is_refused(tiny):
    penalty = OverlongPenalty.made("letters", weight=0.5, length=10, share=0.5)
    with pytest.raises(UsageError, match="'letters' of its own"):
        rolled_out(tiny, mixed([]), GroupChoice(), penalty=penalty)
