import math

import pytest
import rollout_envs  # noqa: F401  (registers the environments)
import torch
from rollout_envs import BareEnv, FailingEnv, FaultyEnv

from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.errors import UsageError
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout import Chat, Limits
from corrgrpo_train.rollout.groups import GroupSampler

TOOL_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


LIMITS = Limits(8, 4000)


class Recording(TransformersEngine):
    """Remembers every completion that it returned, by key."""

    def generate(self, requests, *, temperature):
        completions = super().generate(requests, temperature=temperature)
        self.seen = {**getattr(self, "seen", {}), **{r.key: (r, c) for r, c in zip(requests, completions, strict=True)}}
        return completions


def rollout(tiny, env, env_args=None, *, ends=(), limits=LIMITS, template=None, prompt=2000, workers=1, **shape):
    model, tokenizer = tiny
    if template:
        tokenizer.chat_template = template
    # More end tokens than the tokenizer's own: a random model then ends some turns early and others not.
    chat = Chat(tokenizer, ends)
    engine = Recording(model, sorted(chat.eos_ids))
    sampler = GroupSampler(
        env, env_args or {}, chat, groups=2, group_size=3, max_prompt_tokens=prompt, seed=1, workers=workers, **shape
    )
    episodes = sampler.rollout(engine, limits, temperature=1.0, key=(5, 9))
    sampler.close()
    return episodes, engine, chat, sampler


ENDS = range(100, 130)


@pytest.mark.parametrize("template", [None, TOOL_TEMPLATE], ids=["no tool support", "tool support"])
@pytest.mark.parametrize("turns", [1, 3])
def test_trained_tokens_are_the_sampled_ones(tiny, turns, template):
    episodes, engine, chat, _ = rollout(tiny, "rollout/Toy-v0", {"turns": turns}, ends=ENDS, template=template)
    assert len(episodes) == 6
    policy, used = Policy(tiny[0]), set()
    for episode in episodes:
        keys = sorted(key for key in engine.seen if key[2:4] == (episode.group, episode.member))
        assert [key[4] for key in keys] == list(range(turns))
        sampled, logprobs, texts = [], [], []
        for key in keys:
            request, completion = engine.seen[key]
            sampled += completion.token_ids
            logprobs += completion.logprobs
            texts.append(chat.text(completion.token_ids))
            # The prompt of every turn is the sequence so far: nothing was tokenised again.
            length = len(request.prompt_ids)
            assert tuple(episode.tokens.token_ids[: length + len(completion.token_ids)]) == (
                request.prompt_ids + completion.token_ids
            )
            used.add(key)
        tokens = episode.tokens
        assert [t for t, s in zip(tokens.token_ids, tokens.sampled, strict=True) if s] == sampled
        assert [p for p, s in zip(tokens.behaviour_logprobs, tokens.sampled, strict=True) if s] == logprobs
        assert episode.texts == texts
        (batch,) = micro_batches([tokens], [0], 10_000)
        assert batch.targets.tolist() == sampled
        assert torch.allclose(policy.score(batch, 1.0).logprobs, torch.tensor(logprobs), atol=1e-4)
    assert used == set(engine.seen)


@pytest.mark.parametrize("template", [None, TOOL_TEMPLATE], ids=["no tool support", "tool support"])
def test_the_whole_sequence_is_the_rendered_conversation(tiny, template):
    # Byte tokens: where all texts are plain, the sequence's text must be that of the rendered conversation.
    episodes, _, chat, _ = rollout(tiny, "rollout/Toy-v0", {"turns": 3}, template=template, ends=ENDS)
    for episode in episodes:
        text = chat.tokenizer.decode(episode.tokens.token_ids, skip_special_tokens=False)
        assert text.count("says it again") == 1
        position = 0
        for turn in episode.texts[:-1]:
            marker = f"<|im_start|>tool\n<|im_end|>{turn}<|im_end|>\n<|im_start|>assistant\n"
            assert marker in text[position:]
            position = text.index(marker, position) + len(marker)


def test_episodes_are_scored_by_their_environment(tiny):
    episodes, *_ = rollout(tiny, "rollout/Toy-v0", {"reward_weights": {"short": -1.0}})
    for episode in episodes:
        (text,) = episode.texts
        expected = {"letters": text.count("e") / max(1, len(text)), "short": float(len(text) < 4)}
        assert episode.components == expected
        assert episode.weights == {"letters": 1.0, "short": -1.0}
        assert episode.reward == pytest.approx(expected["letters"] - expected["short"])
        assert (episode.status, episode.metrics, episode.valid) == ("ok", {"turns": 1.0}, True)
    assert len({episode.task_id for episode in episodes}) == 2
    assert [(e.group, e.member) for e in episodes] == [(g, m) for g in range(2) for m in range(3)]


def test_threads_change_nothing(tiny):
    one, *_ = rollout(tiny, "rollout/Toy-v0", {"turns": 3})
    many, *_ = rollout(tiny, "rollout/Toy-v0", {"turns": 3}, workers=4)
    assert [(e.tokens, e.components) for e in one] == [(e.tokens, e.components) for e in many]


def test_a_full_context_ends_the_episode_with_a_score(tiny):
    _, _, chat, _ = rollout(tiny, "rollout/Toy-v0", {"turns": 3})
    prompt = len(chat.opening([{"role": "system", "content": "spell"}, {"role": "user", "content": "abbbb"}], "[]"))
    for extra in (3, 8, 30):  # within the first turn, at its end, within the text before the second
        limits = Limits(8, prompt + extra)
        episodes, *_ = rollout(tiny, "rollout/Toy-v0", {"turns": 3, "with_tools": False}, limits=limits)
        for episode in episodes:
            assert len(episode.tokens) <= prompt + extra
            assert episode.truncated
            assert episode.status == "length"
            assert episode.components == {"letters": 0.0, "short": 1.0}


def test_long_first_prompts_are_left_out_and_counted(tiny):
    _, _, chat, _ = rollout(tiny, "rollout/Toy-v0")
    short = len(chat.opening([{"role": "system", "content": "spell"}, {"role": "user", "content": "abb"}], "[]"))
    episodes, _, _, sampler = rollout(tiny, "rollout/Toy-v0", {"with_tools": False}, prompt=short)
    assert all(episode.task_id in ("toy-0", "toy-1", "toy-2") for episode in episodes)
    assert sampler.position == 2 + sampler.too_long
    with pytest.raises(UsageError, match="max_prompt_tokens=3"):
        rollout(tiny, "rollout/Toy-v0", prompt=3)


def test_a_passing_failure_is_repaired(tiny):
    FailingEnv.calls = 0
    # The environment raises at its first, third, … step call; the second try goes through.
    episodes, *_ = rollout(tiny, "rollout/Failing-v0", {"fail": "step"})
    assert all(episode.valid and episode.error is None for episode in episodes)
    plain, *_ = rollout(tiny, "rollout/Toy-v0")
    assert [e.tokens for e in episodes] == [e.tokens for e in plain]


@pytest.mark.parametrize("hang", ["step", "reset", ""])
@pytest.mark.parametrize("workers", [1, 4])
def test_an_environment_that_never_answers_costs_its_episodes_only(tiny, hang, workers):
    model, tokenizer = tiny
    chat = Chat(tokenizer, ENDS)
    engine = Recording(model, sorted(chat.eos_ids))
    settings = {"groups": 2, "group_size": 3, "max_prompt_tokens": 2000, "seed": 1, "workers": workers}
    sampler = GroupSampler("rollout/Hanging-v0", {"hang": hang}, chat, timeout=0.3, **settings)
    seen = []
    for step in range(3):  # six groups: every task once, and the environments that hung are used again
        seen += sampler.rollout(engine, LIMITS, temperature=1.0, key=(5, step))
    sampler.close()
    hit = [episode for episode in seen if episode.task_id == "toy-1"]
    assert len(hit) == 3
    for episode in seen:
        assert episode.valid == (episode not in hit or not hang)
        if not episode.valid:
            assert episode.status == "environment_error"
            assert "no answer within 0.3 s (env_timeout)" in episode.error


@pytest.mark.parametrize("fail", ["always", "reset"])
def test_a_lasting_failure_costs_its_episodes_only(tiny, fail):
    episodes, *_ = rollout(tiny, "rollout/Failing-v0", {"fail": fail})
    hit = [episode for episode in episodes if fail == "always" or episode.task_id == "toy-1"]
    for episode in episodes:
        assert episode.valid == (episode not in hit)
        if episode in hit:
            assert episode.status == "environment_error"
            assert "ConnectionError: no simulator" in episode.error
            assert episode.components == {}
            assert math.isnan(episode.reward)


def test_a_third_party_environment_needs_only_the_mandatory_part(tiny):
    episodes, *_ = rollout(tiny, "rollout/Bare-v0")
    words = [e.tokens.token_ids[: e.tokens.prompt_length] for e in episodes]
    assert words[0] == words[1] == words[2]  # a group shares its seed
    assert all(e.valid and e.reward == 2 * e.components["hit"] for e in episodes)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no components", "reward_components"),
        ("no messages", "'messages' hold the conversation"),
        ("other keys", "one set of names"),
        ("other reward", "other weights than it reports"),
        ("nan reward", "other weights than it reports"),
        ("text component", "a dict of numbers"),
        ("infinite weight", "reward_weights must be finite"),
        ("four values", "step must return"),
        ("constructor", "can't be made: KeyError: 'no simulator'"),
    ],
)
def test_a_broken_contract_is_told(tiny, fault, message):
    with pytest.raises(UsageError, match=message):
        rollout(tiny, "rollout/Bare-v0", {"fault": fault})


@pytest.mark.parametrize("fault", BareEnv.STRANGE)
def test_members_of_another_meaning_are_let_be(tiny, fault):
    episodes, *_ = rollout(tiny, "rollout/Bare-v0", {"fault": fault})
    assert all(episode.valid and episode.task_id.startswith("seed:") for episode in episodes)


@pytest.mark.parametrize(
    "fault",
    [*FaultyEnv.LATER_MESSAGES, *FaultyEnv.OBSERVATIONS, *FaultyEnv.RAISED, *FaultyEnv.INFOS, "unprintable"],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_faulty_environment_costs_its_episodes_only(tiny, fault, workers):
    episodes, *_ = rollout(tiny, "rollout/Faulty-v0", {"fault": fault}, workers=workers)
    for episode in episodes:
        assert not episode.valid
        assert episode.status == "environment_error"
        assert episode.error
        assert "\n" not in episode.error
        assert len(episode.error) < 1000


@pytest.mark.parametrize("fault", FaultyEnv.OBSERVATIONS)
def test_a_first_observation_that_cannot_be_used_is_told(tiny, fault):
    with pytest.raises(UsageError) as caught:
        rollout(tiny, "rollout/Faulty-v0", {"fault": fault, "when": "reset"})
    assert "\n" not in str(caught.value)


def test_an_environment_without_a_fault_is_trained_on(tiny):
    episodes, *_ = rollout(tiny, "rollout/Faulty-v0")
    assert all(episode.valid and episode.components == {"a": 1.0} for episode in episodes)
    assert all(episode.metrics == {"n": 1.0} for episode in episodes)


def test_a_rewritten_conversation_is_not_trained_on(tiny):
    episodes, *_ = rollout(tiny, "rollout/Bare-v0", {"fault": "rewrites"})
    assert all("rewritten" in episode.error and not episode.valid for episode in episodes)


def test_an_infinite_reward_costs_its_episode_only(tiny):
    episodes, *_ = rollout(tiny, "rollout/Bare-v0", {"fault": "infinite"})
    assert all("infinite" in episode.error and not episode.valid for episode in episodes)


def test_unscored_components_make_an_episode_invalid_unless_their_weight_is_zero(tiny):
    episodes, *_ = rollout(tiny, "rollout/Nan-v0")
    assert not any(episode.valid for episode in episodes)
    episodes, *_ = rollout(tiny, "rollout/Nan-v0", {"reward_weights": {"short": 0.0}})
    assert all(episode.valid and math.isnan(episode.components["short"]) for episode in episodes)


@pytest.mark.parametrize(
    ("env", "env_args", "message"),
    [
        ("rollout/Toi-v0", {}, "Toi"),
        ("nowhere/Toy-v0", {}, "nowhere"),
        ("rollout/Toy-v0", {"split": "trian"}, "'train'"),
        ("rollout/Toy-v0", {"color": 1}, "color"),
        ("no_such_module:rollout/Toy-v0", {}, "no_such_module"),
        ("rollout/Toy-v0", {"reward_weights": {"shirt": 1.0}}, "'short'"),
    ],
)
def test_environments_that_cannot_be_made(tiny, env, env_args, message):
    with pytest.raises(UsageError, match=message) as caught:
        rollout(tiny, env, env_args)
    assert "\n" not in str(caught.value)
