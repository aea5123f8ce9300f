import pytest
import torch

from corrgrpo_train.engines import SamplingRequest
from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.errors import UsageError


def requests(count, new_tokens=12):
    prompts = [(3, 4, 5), tuple(range(10, 40)), (7,), (3, 4, 5)]
    return [SamplingRequest(prompts[i % 4], new_tokens, (0, i)) for i in range(count)]


@torch.no_grad()
def full_logprobs(model, prompt, completion, temperature):
    """Independent: one plain forward pass over the whole sequence."""
    ids = torch.tensor([list(prompt) + list(completion)])
    logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits.double(), -1).gather(1, torch.tensor(completion).unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_are_those_of_a_plain_forward_pass(tiny, temperature):
    model, _ = tiny
    asked = requests(6)
    for request, completion in zip(
        asked, TransformersEngine(model, [2]).generate(asked, temperature=temperature), strict=True
    ):
        expected = full_logprobs(model, request.prompt_ids, completion.token_ids, temperature)
        assert torch.allclose(torch.tensor(completion.logprobs).double(), expected, atol=1e-4)


def test_a_sequence_does_not_depend_on_its_batch(tiny):
    model, _ = tiny
    engine = TransformersEngine(model, [2])
    together = engine.generate(requests(8), temperature=1.0)
    alone = [engine.generate([request], temperature=1.0)[0] for request in requests(8)]
    small = TransformersEngine(model, [2], max_batch=3).generate(requests(8), temperature=1.0)
    assert [c.token_ids for c in together] == [c.token_ids for c in alone] == [c.token_ids for c in small]
    # Equal prompts with different keys give different samples.
    assert together[0].token_ids != together[3].token_ids


def test_batches_are_even_and_hold_no_more_tokens_than_the_cache_may(tiny):
    model, _ = tiny
    engine = TransformersEngine(model, [2], max_cached_tokens=4 * (30 + 12))
    sizes = [len(batch) for batch in engine._batches(requests(9))]
    assert sizes == [3, 3, 3]
    bounded = engine.generate(requests(9), temperature=1.0)
    free = TransformersEngine(model, [2]).generate(requests(9), temperature=1.0)
    assert [c.token_ids for c in bounded] == [c.token_ids for c in free]
    tiny_cache = TransformersEngine(model, [2], max_cached_tokens=1)
    assert [len(batch) for batch in tiny_cache._batches(requests(3))] == [1, 1, 1]
    assert tiny_cache.generate([], temperature=1.0) == []


def test_what_prompts_begin_with_is_computed_once(tiny):
    model, _ = tiny
    shared = tuple(range(10, 50))
    prompts = [(*shared, 60, 61, 62), (*shared, 70), (*shared, 60, 80, 81, 82, 83), (5, 6, 7), (*shared, 70)]
    asked = [SamplingRequest(prompt, 8, (2, i)) for i, prompt in enumerate(prompts)]
    computed = []
    handle = model.get_input_embeddings().register_forward_hook(
        lambda _, inputs, __: computed.append(inputs[0].numel())
    )
    completions = TransformersEngine(model, [2]).generate(asked, temperature=1.0)
    handle.remove()
    for request, completion in zip(asked, completions, strict=True):
        expected = full_logprobs(model, request.prompt_ids, completion.token_ids, 1.0)
        assert torch.allclose(torch.tensor(completion.logprobs).double(), expected, atol=1e-4)
    # Two beginnings, padded to the longer one; then four different rests, padded to the longest; then the rows' tokens.
    assert computed[:2] == [2 * 40, 4 * 5]
    assert all(count <= len(prompts) for count in computed[2:])
    alone = [TransformersEngine(model, [2]).generate([one], temperature=1.0)[0].token_ids for one in asked]
    assert [completion.token_ids for completion in completions] == alone


def test_later_turns_share_their_group_s_prompt_however_long_they_are(tiny):
    model, _ = tiny
    engine, openings = TransformersEngine(model, [2, *range(60, 90)]), (tuple(range(10, 40)), tuple(range(110, 140)))
    episodes = [(group, member, openings[group]) for group in range(2) for member in range(4)]
    sizes = []
    handle = model.get_input_embeddings().register_forward_hook(lambda _, inputs, __: sizes.append(inputs[0].shape))
    for turn in range(3):
        asked = [SamplingRequest(ids, 10, (3, group, member, turn)) for group, member, ids in episodes]
        sizes.clear()
        completions = engine.generate(asked, temperature=1.0)
        if turn:
            # Two prompts, then what each of the eight has of its own; the rest of a turn is longer than the prompt.
            assert sizes[0] == (2, 30)
            assert sizes[1] == (8, max(len(ids) for *_, ids in episodes) - 30)
        for request, completion in zip(asked, completions, strict=True):
            expected = full_logprobs(model, request.prompt_ids, completion.token_ids, 1.0)
            assert torch.allclose(torch.tensor(completion.logprobs).double(), expected, atol=1e-4)
            (alone,) = engine.generate([request], temperature=1.0)
            assert alone.token_ids == completion.token_ids
        episodes = [
            (group, member, ids + completion.token_ids + (2, *range(150, 175 + member)))
            for (group, member, ids), completion in zip(episodes, completions, strict=True)
        ]
    handle.remove()
    assert len(episodes[0][2]) > 2 * 30


def test_greedy_is_the_library_s_greedy(tiny):
    model, _ = tiny
    asked = requests(3, new_tokens=20)
    for request, completion in zip(asked, TransformersEngine(model, [2]).generate(asked, temperature=0), strict=True):
        ids = torch.tensor([request.prompt_ids])
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)
        assert list(completion.token_ids) == output[0, len(request.prompt_ids) :].tolist()


def test_completions_end_with_their_end_token_or_at_their_limit(tiny):
    model, _ = tiny
    asked = [SamplingRequest((3, 4, 5), 1 + i % 40, (1, i)) for i in range(40)]
    ends = [2, *range(100, 130)]  # many end tokens, so that both cases occur
    completions = TransformersEngine(model, ends).generate(asked, temperature=1.0)
    assert {completion.finished for completion in completions} == {True, False}
    for request, completion in zip(asked, completions, strict=True):
        *body, last = completion.token_ids
        assert not set(body) & set(ends)
        assert completion.finished == (last in ends)
        assert completion.finished or len(completion.token_ids) == request.max_new_tokens
        assert len(completion.logprobs) == len(completion.token_ids)


def test_the_model_s_mode_is_left_as_it_was(tiny):
    model, _ = tiny
    model.train()
    TransformersEngine(model, [2]).generate(requests(1), temperature=1.0)
    assert model.training


def test_no_requests_no_completions(tiny):
    assert TransformersEngine(tiny[0], [2]).generate([], temperature=1.0) == []


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_policy_that_has_diverged_is_told_in_one_line(tiny, temperature):
    model, _ = tiny
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(torch.nan)
    with pytest.raises(UsageError, match="training has diverged"):
        TransformersEngine(model, [2]).generate(requests(4), temperature=temperature)
