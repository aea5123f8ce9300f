import copy

import pytest
import torch

from corrgrpo_train.engines.push_check import PushCheck, plain_logprobs
from corrgrpo_train.engines.transformers import TransformersEngine


def answers(check, model):
    return TransformersEngine(model, [2]).generate(check.requests, temperature=1.0)


def test_equal_weights_agree_and_one_spoilt_tensor_does_not(tiny):
    model, _ = tiny
    other = copy.deepcopy(model)
    check = PushCheck(model, context=1000, exact=True)
    found = check.compare(answers(check, other))
    assert found.difference < 1e-5
    assert not found.stale
    assert not found.policy_is_nan
    with torch.no_grad():
        # A random tiny model's layers hardly matter; its embedding does.
        weight = other.model.embed_tokens.weight
        weight.copy_(weight.roll(1, 0))
    assert check.compare(answers(check, other)).difference > 1e-3


@pytest.mark.parametrize(("exact", "stale"), [(True, True), (False, False)])
def test_an_engine_that_answers_as_before_is_stale_once_the_policy_has_changed(tiny, exact, stale):
    model, _ = tiny
    old = copy.deepcopy(model)
    check = PushCheck(model, context=1000, exact=exact)
    # Nothing has changed: the same answer is right.
    assert not any(check.compare(answers(check, old)).stale for _ in range(2))
    with torch.no_grad():
        model.model.norm.weight.mul_(1.001)
    found = check.compare(answers(check, old))
    assert found.difference < 1e-2
    # With fewer digits than the policy's the engine may rightly hold the same weights as before.
    assert found.stale == stale
    assert not check.compare(answers(check, model)).stale


def test_a_policy_of_nans_is_said_to_be_one(tiny):
    model, _ = tiny
    check = PushCheck(model, context=1000, exact=True)
    completions = answers(check, copy.deepcopy(model))
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    assert check.compare(completions).policy_is_nan


@pytest.mark.parametrize("context", [2, 3, 40, 47, 48, 5000])
def test_what_is_sampled_fits_into_the_context(tiny, context):
    check = PushCheck(tiny[0], context=context, exact=True)
    for request in check.requests:
        assert len(request.prompt_ids) >= 1
        assert request.max_new_tokens >= 1
        assert len(request.prompt_ids) + request.max_new_tokens <= context
    assert len({request.key for request in check.requests}) == len(check.requests)


@torch.no_grad()
def test_plain_logprobs_are_the_library_s_loss(tiny):
    model, _ = tiny
    prompt, tokens = [5, 6, 7], [9, 11, 200, 2]
    ids = torch.tensor([prompt + tokens])
    labels = torch.tensor([[-100] * 3 + tokens])
    loss = model(input_ids=ids, labels=labels).loss.item()
    assert sum(plain_logprobs(model, prompt, tokens)) / 4 == pytest.approx(-loss, rel=1e-5)
