import math

import pytest
import rollout_envs  # noqa: F401  (registers the environments)
import torch

from corrgrpo_train.errors import UsageError
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout import Chat
from corrgrpo_train.rollout.groups import GroupSampler
from corrgrpo_train.warm_start import reference_sequences, supervised_steps


def sampler(tokenizer, env="rollout/Toy-v0", **env_args):
    chat = Chat(tokenizer)
    return GroupSampler(env, env_args, chat, groups=1, group_size=1, max_prompt_tokens=2000, seed=0), chat


def references(source, chat, count, longest=4000):
    return reference_sequences(source, chat, count, longest).sequences


@pytest.mark.parametrize("turns", [1, 3])
def test_references_are_acted_out(tiny, turns):
    _, tokenizer = tiny
    source, chat = sampler(tokenizer, turns=turns, with_tools=False)
    sequences = references(source, chat, 4)
    assert source.position == 4
    tasks = [source.order[i] for i in range(4)]
    for sequence, task in zip(sequences, tasks, strict=True):
        word = "a" + "b" * int(task.removeprefix("toy-"))
        expected = f"<|im_start|>system\nspell<|im_end|>\n<|im_start|>user\n{word}<|im_end|>\n<|im_start|>assistant\n"
        expected += "e<|im_end|>\n<|im_start|>tool\n<|im_end|>e<|im_end|>\n<|im_start|>assistant\n" * (turns - 1)
        assert tokenizer.decode(sequence.token_ids) == expected + "e<|im_end|>"
        learnt = [t for t, s in zip(sequence.token_ids, sequence.sampled, strict=True) if s]
        assert tokenizer.decode(learnt) == "e<|im_end|>" * turns


def test_no_more_references_than_tasks(tiny):
    source, chat = sampler(tiny[1])
    assert len(references(source, chat, 100)) == 6


def test_an_environment_without_references_is_refused(tiny):
    source, chat = sampler(tiny[1], env="rollout/Bare-v0")
    with pytest.raises(UsageError, match="--warm-start 0"):
        references(source, chat, 2)


def test_a_task_whose_environment_fails_is_passed_over(tiny):
    source, chat = sampler(tiny[1], env="rollout/Failing-v0", fail="reset")  # task toy-1 of six
    assert len(references(source, chat, 100)) == 5


def test_references_that_the_model_has_no_room_for_are_left_out_and_counted(tiny):
    source, chat = sampler(tiny[1], with_tools=False)
    lengths = sorted(len(sequence) for sequence in references(source, chat, 6))
    assert len(set(lengths)) == 6
    source, chat = sampler(tiny[1], with_tools=False)
    found = reference_sequences(source, chat, 6, lengths[3])
    assert sorted(map(len, found.sequences)) == lengths[:4]
    assert found.too_long == 2
    source, chat = sampler(tiny[1], with_tools=False)
    with pytest.raises(UsageError, match=r"all 6 reference answers .* 5 tokens"):
        reference_sequences(source, chat, 6, 5)


def test_the_loss_is_the_mean_cross_entropy_and_falls(tiny):
    model, tokenizer = tiny
    source, chat = sampler(tokenizer)
    sequences = references(source, chat, 4)
    total, count = 0.0, 0
    with torch.no_grad():
        for sequence in sequences[:2]:
            logprobs = torch.log_softmax(model(torch.tensor([sequence.token_ids])).logits[0].double(), -1)
            for place, sampled in enumerate(sequence.sampled):
                if sampled:
                    total -= float(logprobs[place - 1, sequence.token_ids[place]])
                    count += 1
    settings = {"batch": 2, "epochs": 5, "learning_rate": 3e-3, "max_grad_norm": 1.0, "token_budget": 300}
    losses = list(supervised_steps(Policy(model), sequences, **settings))
    assert len(losses) == 10
    assert losses[0] == pytest.approx(total / count, rel=1e-4)
    assert losses[0] == pytest.approx(math.log(259), rel=0.05)  # a random model knows nothing of 259 tokens
    assert losses[-1] < 0.5 * losses[0]
