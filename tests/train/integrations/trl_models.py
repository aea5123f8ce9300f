"""Tiny policies for the tests with TRL: real ones, and one whose samples are written beforehand."""

import torch

from corrgrpo_train.models.tiny import build_tiny


def tiny_policy(*, tools=False):
    """The tiny model and its tokenizer, with a chat template that knows tools where asked for."""
    model, tokenizer = build_tiny(seed=0, hidden_size=64, layers=2)
    if tools:
        from trl.chat_template_utils import qwen2_5_chat_template

        tokenizer.chat_template = qwen2_5_chat_template
    return model, tokenizer


class Script:
    """Stands in for a model's `generate`: `write(prompt text, row)` gives each row's text; the end token follows."""

    def __init__(self, model, tokenizer, write):
        self.tokenizer, self.write, self.prompts = tokenizer, write, []
        model.generate = self

    def __call__(self, input_ids, attention_mask, **_):
        texts = []
        for row, (ids, mask) in enumerate(zip(input_ids, attention_mask, strict=True)):
            prompt = self.tokenizer.decode(ids[mask.bool()])
            self.prompts.append(prompt)
            texts.append(self.write(prompt, row))
        ids = [[*self.tokenizer(text).input_ids, self.tokenizer.eos_token_id] for text in texts]
        longest = max(map(len, ids))
        padded = [one + [self.tokenizer.pad_token_id] * (longest - len(one)) for one in ids]
        return torch.cat([input_ids, torch.tensor(padded)], dim=1)


def grpo_config(folder, **settings):
    from trl import GRPOConfig

    return GRPOConfig(
        str(folder),
        **{
            "use_cpu": True,
            "bf16": False,
            "per_device_train_batch_size": 4,
            "num_generations": 4,
            "max_completion_length": 16,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            **settings,
        },
    )
