import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_train.engines import SamplingRequest
from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.packing import micro_batches
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout.episode import TokenSequence


def sampled_sequences(model, *, turns, groups=3, members=4, temperature=1.0):
    """Sample from the engine, with text between the turns; the engine's end token is also the padding token."""
    engine = TransformersEngine(model, [2, *range(60, 90)])
    sequences, labels = [], []
    for group in range(groups):
        for member in range(members):
            sequence = TokenSequence()
            sequence.add_given([3 + group, 2, 11, *range(20, 20 + 7 * group)])  # the end token within a prompt, too
            for turn in range(turns):
                request = SamplingRequest(tuple(sequence.token_ids), 10, (0, group, member, turn))
                (completion,) = engine.generate([request], temperature=temperature)
                sequence.add_sampled(completion.token_ids, completion.logprobs)
                if turn < turns - 1:
                    sequence.add_given([2, 40 + turn, 41, 42])
            sequences.append(sequence)
            labels.append(group)
    return sequences, labels


def by_token(policy, batches, temperature=1.0):
    """{(sequence, place): log-probability}."""
    found = {}
    for batch in batches:
        values = policy.score(batch, temperature).logprobs
        for owner, place, value in zip(batch.owners.tolist(), batch.places.tolist(), values, strict=True):
            assert (owner, place) not in found
            found[owner, place] = value
    return found


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("budget", [10, 60, 10_000])
def test_the_trainer_s_logprobs_are_the_engine_s(tiny, turns, shared, budget):
    model, _ = tiny
    sequences, groups = sampled_sequences(model, turns=turns, temperature=0.8)
    policy = Policy(model)
    assert policy.shares_prompts
    found = by_token(policy, micro_batches(sequences, groups, budget, shared=shared), 0.8)
    expected = {
        (number, place): sequence.behaviour_logprobs[place]
        for number, sequence in enumerate(sequences)
        for place, sampled in enumerate(sequence.sampled)
        if sampled
    }
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key].item() == pytest.approx(value, abs=1e-4)


def test_gradients_do_not_depend_on_packing(tiny):
    model, _ = tiny
    sequences, groups = sampled_sequences(model, turns=2)
    policy = Policy(model)
    gradients = []
    for shared, budget in [(True, 10_000), (True, 50), (False, 10_000), (False, 1)]:
        model.zero_grad()
        for batch in micro_batches(sequences, groups, budget, shared=shared):
            weights = 1.0 + batch.owners.float() + 0.1 * batch.places
            (policy.score(batch, 1.0).logprobs * weights).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    for gradient in gradients[1:]:
        assert torch.allclose(gradient, gradients[0], rtol=1e-3, atol=1e-4 * gradients[0].abs().max())


def test_shared_rows_hold_a_prompt_once():
    prompt = list(range(100))
    sequences = [TokenSequence(prompt + [7] * n, [False] * 100 + [True] * n, [0.0] * (100 + n)) for n in (3, 5, 4)]
    (batch,) = micro_batches(sequences, [0, 0, 0], 1000)
    assert batch.input_ids.shape == (1, 100 + 3 + 5 + 4)
    # Same prompt in another group: a row of its own.
    assert sum(len(b.input_ids) for b in micro_batches(sequences, [0, 0, 1], 1000)) == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 6), st.lists(st.booleans(), max_size=8)), min_size=1, max_size=12
    ),
    st.integers(1, 40),
    st.booleans(),
)
@settings(deadline=None, max_examples=200)
def test_every_sampled_token_appears_once_in_its_context(drawn, budget, shared):
    sequences, groups = [], []
    for number, (group, prompt, tail) in enumerate(drawn):
        sampled = [False] * prompt + [True, *tail]
        tokens = [(group * 50 + i) if i < prompt else 1000 * (number + 1) + i for i in range(len(sampled))]
        sequences.append(TokenSequence(tokens, sampled, [0.0] * len(tokens)))
        groups.append(group)
    seen = []
    for batch in micro_batches(sequences, groups, budget, shared=shared):
        rows, length = batch.input_ids.shape
        assert rows == 1 or rows * length <= budget
        mask = batch.mask[:, 0]
        for row, source, target, owner, place in zip(
            *(getattr(batch, name).tolist() for name in ("rows", "sources", "targets", "owners", "places")), strict=True
        ):
            seen.append((owner, place))
            assert target == sequences[owner].token_ids[place]
            # What the source may look at is exactly the sequence before the token, at its own positions.
            visible = mask[row, source]
            assert batch.input_ids[row][visible].tolist() == sequences[owner].token_ids[:place]
            assert batch.position_ids[row][visible].tolist() == list(range(place))
    expected = [(n, p) for n, s in enumerate(sequences) for p, sampled in enumerate(s.sampled) if sampled]
    assert sorted(seen) == expected
