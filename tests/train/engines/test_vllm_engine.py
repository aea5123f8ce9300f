"""vLLM against plain forward passes of the policy; `make test-vllm` runs these with vLLM's CPU build."""

import copy

import pytest
import rollout_envs  # noqa: F401  (registers the environments)
import torch

from corrgrpo_train.config import Config
from corrgrpo_train.engines import SamplingRequest
from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.errors import UsageError
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout import SCHEDULES, Chat, Limits, TokenSequence
from corrgrpo_train.rollout.groups import GroupSampler

pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

CONTEXT = 1024
TEXTS = (
    "The capital of France is",
    "Once upon a time there was a small robot that",
    "def add(a, b):\n    return",
    "The capital of France is",
)


@pytest.fixture(scope="module")
def loaded():
    from corrgrpo_train.models import load_policy_model

    torch.set_num_threads(1)
    return load_policy_model("default")


@pytest.fixture(scope="module")
def engine(loaded):
    from corrgrpo_train.engines.registry import ENGINES

    made = ENGINES["vllm"](
        Policy(loaded.model), loaded.stop_token_ids, Config(env="RLLA-v0", vllm_memory=0.25), CONTEXT
    )
    yield made
    made.close()


@pytest.fixture
def weights(loaded, engine):
    """The policy's weights are put back after the test, in vLLM as well."""
    before = copy.deepcopy(loaded.model.state_dict())
    yield
    loaded.model.load_state_dict(before)
    engine.update_weights()


def asked(loaded, count=4, new_tokens=16, first_key=0):
    prompts = [tuple(loaded.tokenizer(text).input_ids) for text in TEXTS]
    return [SamplingRequest(prompts[i % len(prompts)], new_tokens, (first_key, i)) for i in range(count)]


@torch.no_grad()
def full_logprobs(model, prompt, completion, temperature):
    """Independent: one plain forward pass over the whole sequence."""
    ids = torch.tensor([list(prompt) + list(completion)])
    logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits.double(), -1).gather(1, torch.tensor(completion).unsqueeze(1)).squeeze(1)


def differences(loaded, engine, temperature, first_key=0):
    requests = asked(loaded, first_key=first_key)
    pairs = zip(requests, engine.generate(requests, temperature=temperature), strict=True)
    return torch.cat(
        [
            (
                torch.tensor(completion.logprobs).double()
                - full_logprobs(loaded.model, request.prompt_ids, completion.token_ids, temperature or 1)
            ).abs()
            for request, completion in pairs
        ]
    )


@pytest.mark.parametrize("temperature", [0, 0.7, 1.0, 1.6])
def test_logprobs_are_the_policy_s_at_the_sampling_temperature(loaded, engine, temperature):
    found = differences(loaded, engine, temperature)
    assert len(found) > 30
    assert found.max() < 1e-3
    assert found.mean() < 1e-4


def test_logprobs_are_those_that_the_update_computes(loaded, engine):
    (request,), policy = asked(loaded, 1), Policy(loaded.model)
    (completion,) = engine.generate([request], temperature=0.7)
    tokens = TokenSequence()
    tokens.add_given(list(request.prompt_ids))
    tokens.add_sampled(completion.token_ids, completion.logprobs)
    (batch,) = micro_batches([tokens], [0], 1000)
    assert torch.allclose(policy.score(batch, 0.7).logprobs, torch.tensor(completion.logprobs), atol=1e-3)


def test_greedy_is_the_transformers_engine_s(loaded, engine):
    requests = asked(loaded, 3, new_tokens=24)
    expected = TransformersEngine(loaded.model, loaded.stop_token_ids).generate(requests, temperature=0)
    found = engine.generate(requests, temperature=0)
    assert [(c.token_ids, c.finished) for c in found] == [(c.token_ids, c.finished) for c in expected]
    assert "Paris" in loaded.tokenizer.decode(found[0].token_ids)


def test_draws_belong_to_their_key_and_not_to_their_batch(loaded, engine):
    together = engine.generate(asked(loaded, 8), temperature=1.0)
    alone = [engine.generate([request], temperature=1.0)[0] for request in asked(loaded, 8)]
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]
    # Equal prompts with different keys give different samples.
    assert together[0].token_ids != together[3].token_ids


def test_draws_follow_the_distribution(loaded, engine):
    count, temperature = 600, 0.8
    prompt = asked(loaded)[2].prompt_ids
    drawn = engine.generate([SamplingRequest(prompt, 1, (7, i)) for i in range(count)], temperature=temperature)
    with torch.no_grad():
        exact = torch.softmax(loaded.model(torch.tensor([prompt])).logits[0, -1].double() / temperature, -1)
    top = exact.topk(5)
    for token, share in zip(top.indices.tolist(), top.values.tolist(), strict=True):
        expected, spread = count * share, (count * share * (1 - share)) ** 0.5
        assert abs(sum(c.token_ids == (token,) for c in drawn) - expected) < 4 * spread + 1


def test_completions_end_with_their_end_token_or_at_their_limit(loaded, engine):
    requests = asked(loaded, 4, new_tokens=12)
    free = engine.generate(requests, temperature=1.0)
    stop = free[0].token_ids[3]
    engine.stops, before = [stop], engine.stops
    try:
        stopped = engine.generate(requests, temperature=1.0)
    finally:
        engine.stops = before
    for one, other in zip(stopped, free, strict=True):
        length = other.token_ids.index(stop) + 1 if stop in other.token_ids else 12
        # The end token is kept, and nothing before it is another draw.
        assert one.token_ids == other.token_ids[:length]
        assert one.finished == (stop in other.token_ids)
        assert len(one.logprobs) == len(one.token_ids)
    assert stopped[0].finished
    assert not free[0].finished


def test_every_end_token_of_the_model_is_one_for_vllm(loaded, engine):
    assert engine.stops == sorted(loaded.stop_token_ids)
    chat = Chat(loaded.tokenizer, loaded.stop_token_ids)
    prompt = tuple(chat.opening([{"role": "user", "content": "What is the capital of France?"}]))
    (completion,) = engine.generate([SamplingRequest(prompt, 60, (0,))], temperature=0)
    assert completion.finished
    assert completion.token_ids[-1] in loaded.stop_token_ids
    assert "Paris" in chat.text(completion.token_ids)


def test_a_long_prompt_s_later_turn_and_group_are_the_same_with_the_prefix_cached(loaded, engine, monkeypatch):
    step, outputs = engine.core.step, []
    monkeypatch.setattr(engine.core, "step", lambda: outputs.extend(found := step()) or found)
    long = tuple(loaded.tokenizer("one two three four five six seven eight nine ten " * 40).input_ids)
    assert len(long) > 256  # more than a block of the cache
    for turn in range(2):
        requests = [SamplingRequest(long + (100,) * turn, 6, (turn, member)) for member in range(3)]
        for request, completion in zip(requests, engine.generate(requests, temperature=1.0), strict=True):
            expected = full_logprobs(loaded.model, request.prompt_ids, completion.token_ids, 1.0)
            assert torch.allclose(torch.tensor(completion.logprobs).double(), expected, atol=1e-3)
    cached = [output.num_cached_tokens for output in outputs if output.finished]
    assert all(count >= 256 for count in cached[-3:])  # the later turn


def nudge(model, scale):
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scale * parameter.std() * torch.randn(parameter.shape, generator=generator)


def test_after_an_update_vllm_has_the_policy_s_weights(loaded, engine, weights):
    assert differences(loaded, engine, 1.0).max() < 1e-3
    nudge(loaded.model, 0.05)
    # The old weights in vLLM, the new ones in the policy: the comparison would see it.
    assert differences(loaded, engine, 1.0, first_key=1).mean() > 0.01
    engine.update_weights()
    # The same prompts as before: nothing computed with the old weights is left in the prefix cache.
    assert differences(loaded, engine, 1.0, first_key=1).max() < 1e-3


def test_a_push_that_arrives_spoilt_is_told(loaded, engine, weights):
    pushes = []

    def spoilt():
        pushes.append(1)
        for name, tensor in loaded.model.state_dict().items():
            yield name, tensor.roll(1, 0) if name == "model.layers.7.mlp.down_proj.weight" else tensor

    right, engine.weights = engine.weights, spoilt
    try:
        with pytest.raises(UsageError, match=r"differ from the policy's by .* nats per token"):
            engine.update_weights()
    finally:
        engine.weights = right
    assert len(pushes) == 2


def test_a_push_that_never_arrives_is_told_however_small_the_update(loaded, engine, weights, monkeypatch):
    nudge(loaded.model, 1e-4)
    push = engine.core.collective_rpc
    monkeypatch.setattr(engine.core, "collective_rpc", lambda *args, **kwargs: None)
    with pytest.raises(UsageError, match="did not change although the policy's did"):
        engine.update_weights()
    # Once, and then it works: the second try is enough.
    calls = iter([lambda *args, **kwargs: None, push])
    monkeypatch.setattr(engine.core, "collective_rpc", lambda *args, **kwargs: next(calls)(*args, **kwargs))
    engine.update_weights()
    assert differences(loaded, engine, 1.0).max() < 1e-3


def test_an_error_of_vllm_is_one_line_and_leaves_nothing_behind(loaded, engine, monkeypatch):
    step = engine.core.step

    def fails():
        step()
        raise RuntimeError("kernel\nfailed")

    monkeypatch.setattr(engine.core, "step", fails)
    with pytest.raises(UsageError, match="vLLM failed: RuntimeError: kernel;"):
        engine.generate(asked(loaded), temperature=1.0)
    monkeypatch.undo()
    assert not engine.core.has_unfinished_requests()
    assert differences(loaded, engine, 1.0).max() < 1e-3
    with pytest.raises(UsageError, match="a prompt of 1024 tokens leaves no room in vLLM's context of 1024"):
        engine.generate([SamplingRequest((5,) * CONTEXT, 1, (0,))], temperature=1.0)
    # As many tokens as fit, and not one more.
    (completion,) = engine.generate([SamplingRequest((5,) * (CONTEXT - 3), 9, (0,))], temperature=1.0)
    assert len(completion.token_ids) <= 3
    assert engine.generate([], temperature=1.0) == []


def test_both_schedules_bring_the_same_episodes(loaded, engine):
    chat = Chat(loaded.tokenizer, loaded.stop_token_ids)
    found = {}
    for name, workers in (("lockstep", 1), ("async", 3)):
        sampler = GroupSampler(
            *("rollout/Toy-v0", {"turns": 3}, chat),
            **{"groups": 2, "group_size": 3, "max_prompt_tokens": 500, "seed": 1, "workers": workers},
            schedule=SCHEDULES[name],
        )
        found[name] = sampler.rollout(engine, Limits(10, CONTEXT), temperature=1.0, key=(5, 9))
        sampler.close()
    assert len(found["async"]) == 6
    for one, other in zip(found["lockstep"], found["async"], strict=True):
        assert (one.group, one.member, one.task_id, one.status) == (other.group, other.member, other.task_id, "ok")
        assert one.texts == other.texts
        assert len(other.texts) == 3
        assert one.tokens.token_ids == other.tokens.token_ids
        assert one.tokens.behaviour_logprobs == pytest.approx(other.tokens.behaviour_logprobs, abs=1e-3)
        assert one.components == other.components
        (batch,) = micro_batches([other.tokens], [0], 10_000)
        exact = Policy(loaded.model).score(batch, 1.0).logprobs.tolist()
        heard = [p for p, s in zip(other.tokens.behaviour_logprobs, other.tokens.sampled, strict=True) if s]
        assert heard == pytest.approx(exact, abs=1e-3)
    assert not engine.core.has_unfinished_requests()


# Last, for the cache keeps what was computed with such weights: a run ends here.
def test_a_policy_that_has_diverged_is_told_in_one_line(loaded, engine):
    with torch.no_grad():
        loaded.model.get_input_embeddings().weight.fill_(torch.nan)
    with pytest.raises(UsageError, match="training has diverged"):
        engine.update_weights()
    with pytest.raises(UsageError, match="training has diverged"):
        engine.generate(asked(loaded), temperature=1.0)
