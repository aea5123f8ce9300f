"""What stands for verl's servers in tests: the interface of its client, and answers written beforehand or random."""

import random
from typing import Any

from verl.workers.rollout.replica import TokenOutput


class StubServer:
    """Answers `generate` as verl's client does, and remembers what it was asked.

    `answers` gives the next turn's tokens and log-probabilities for the prompt's tokens.
    """

    def __init__(self, answers: Any, version: int = 3) -> None:
        self.answers, self.version = answers, version
        self.asked: list[dict[str, Any]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **kwargs: Any
    ) -> TokenOutput:
        params = dict(sampling_params)
        limit = params.pop("max_tokens")  # as the server takes it
        ids, logprobs = self.answers(list(prompt_ids))
        ids, logprobs = ids[:limit], logprobs[:limit]
        self.asked.append({"request_id": request_id, "prompt": list(prompt_ids), "limit": limit, "ids": ids, **kwargs})
        fields = {"global_steps": self.version, "min_global_steps": self.version, "max_global_steps": self.version}
        return TokenOutput(
            token_ids=ids,
            log_probs=logprobs if params.get("logprobs") else None,
            stop_reason="completed",
            extra_fields=fields,
        )


class Letters:
    """Random letters, then the end token: a function of the prompt and a count alone."""

    def __init__(self, tokenizer: Any, alphabet: str = "ABCDEFG", longest: int = 3) -> None:
        self.tokenizer, self.alphabet, self.longest, self.calls = tokenizer, alphabet, longest, 0

    def __call__(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        self.calls += 1
        rng = random.Random(f"{self.calls}-{len(prompt_ids)}-{sum(prompt_ids)}")
        text = "".join(rng.choice(self.alphabet) for _ in range(rng.randint(1, self.longest)))
        ids = [*self.tokenizer(text, add_special_tokens=False).input_ids, self.tokenizer.eos_token_id]
        return ids, [-rng.random() for _ in ids]


class InTurn:
    """One letter and the end token: for each prompt the letters in turn, so that a group of as many has each once."""

    def __init__(self, tokenizer: Any, letters: str) -> None:
        self.tokenizer, self.letters = tokenizer, letters
        self.calls: dict[tuple[int, ...], int] = {}

    def __call__(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        count = self.calls[tuple(prompt_ids)] = self.calls.get(tuple(prompt_ids), -1) + 1
        letter = self.letters[count % len(self.letters)]
        return [*self.tokenizer(letter, add_special_tokens=False).input_ids, self.tokenizer.eos_token_id], [-1.0, -1.0]


class Script:
    """The given texts, one a turn, each with its end token; log-probabilities are -1, -2, ... through the episode."""

    def __init__(self, tokenizer: Any, texts: Any) -> None:
        self.tokenizer, self.texts, self.given = tokenizer, list(texts), 0

    def __call__(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        text = self.texts.pop(0)
        ids = [*self.tokenizer(text, add_special_tokens=False).input_ids, self.tokenizer.eos_token_id]
        logprobs = [-float(self.given + place + 1) for place in range(len(ids))]
        self.given += len(ids)
        return ids, logprobs
