"""Generation with vLLM in this process: token ids in, token ids and log-probabilities out.

vLLM holds a copy of the policy's weights. It is pushed when the engine is made and after every update, and each time
the log-probabilities of a few freshly sampled tokens are compared with the policy's own.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from corrgrpo_train.engines.base import Completion, SamplingRequest
from corrgrpo_train.engines.push_check import PushCheck
from corrgrpo_train.engines.sampling import seed_of
from corrgrpo_train.errors import UsageError, first_line

DIVERGED = (
    "the policy's probabilities are not numbers any more (nan): training has diverged; start again with a lower "
    "learning_rate or max_grad_norm"
)
PUSHES = 2  # tries


class VllmEngine:
    """Samples with vLLM; takes whole batches (`generate`) or requests at any time (`submit`, `advance`)."""

    def __init__(
        self,
        core: Any,
        weights: Callable[[], Iterable[tuple[str, Tensor]]],
        check: PushCheck,
        eos_ids: Sequence[int],
        *,
        tolerance: float,
        close: Callable[[], None],
    ) -> None:
        """Push the policy's weights for the first time.

        Args:
            core: a `vllm.LLMEngine` in this process whose log-probabilities are those of the sampling temperature.
            weights: the policy's tensors by their names in a Hugging Face checkpoint.
            check: compares with the policy after a push.
            eos_ids: a completion ends with any of these.
            tolerance: largest mean difference that passes, in nats per token.
            close: gives back what `core` holds.

        Raises:
            UsageError: if vLLM does not take the weights.
        """
        self.core, self.weights, self.check, self.tolerance, self._close = core, weights, check, tolerance, close
        vocabulary, self.context = core.model_config.get_vocab_size(), int(core.model_config.max_model_len)
        self.stops = sorted(token for token in set(eos_ids) if 0 <= token < vocabulary)
        self._tickets = itertools.count()
        self._open: dict[str, str] = {}  # vLLM's name of a request: ticket
        self.update_weights()

    # ---- sampling ----------------------------------------------------------------------------------------

    def generate(self, requests: Sequence[SamplingRequest], *, temperature: float) -> list[Completion]:
        """Sample one completion per request, in order; temperature 0 is greedy.

        Raises:
            UsageError: if vLLM fails, or the probabilities are not numbers any more.
        """
        completions = self._sampled(requests, temperature)
        _check_numbers(completions)
        return completions

    def submit(self, request: SamplingRequest, *, temperature: float) -> str:
        """Add a request and return its ticket.

        Raises:
            UsageError: if the prompt leaves no room for an answer, or vLLM refuses the request.
        """
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        if len(request.prompt_ids) >= self.context:
            raise UsageError(
                f"a prompt of {len(request.prompt_ids)} tokens leaves no room in vLLM's context of {self.context}; "
                "lower max_prompt_tokens or raise max_episode_tokens"
            )
        ticket = str(next(self._tickets))
        with _told():
            parameters = SamplingParams(
                temperature=temperature,
                max_tokens=request.max_new_tokens,
                seed=seed_of(request.key),
                stop_token_ids=self.stops,
                ignore_eos=True,  # vLLM's own idea of the end tokens: `stops` has all of them
                logprobs=0,  # of the sampled token alone
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            name = self.core.add_request(ticket, tokens_input(list(request.prompt_ids)), parameters)
        self._open[ticket] = name
        return ticket

    def advance(self) -> dict[str, Completion]:
        """Decode one more token of everything submitted and return what is complete now, by ticket.

        Raises:
            UsageError: if vLLM fails, or the probabilities are not numbers any more.
        """
        done = self._step()
        _check_numbers(done.values())
        return done

    def abandon(self) -> None:
        """Forget everything submitted that is not complete."""
        if self._open:
            self.core.abort_request(list(self._open.values()), internal=True)
            self._open.clear()

    def _sampled(self, requests: Sequence[SamplingRequest], temperature: float) -> list[Completion]:
        done: dict[str, Completion] = {}
        try:
            tickets = [self.submit(request, temperature=temperature) for request in requests]
            while len(done) < len(tickets):
                done |= self._step()
        finally:
            self.abandon()
        return [done[ticket] for ticket in tickets]

    def _step(self) -> dict[str, Completion]:
        if not self._open:
            return {}
        with _told():
            finished = [output for output in self.core.step() if output.finished]
        for output in finished:
            del self._open[output.request_id]
        return {output.request_id: _completion(output.outputs[0]) for output in finished}

    # ---- weights -----------------------------------------------------------------------------------------

    def update_weights(self) -> None:
        """Push the policy's weights and compare; a push that does not arrive is tried once more.

        Raises:
            UsageError: if vLLM's log-probabilities still differ from the policy's, or it refuses the weights.
        """
        problem = ""
        for _ in range(PUSHES):
            with _told(), torch.no_grad():
                # One tensor at a time: beside the policy's weights and vLLM's there is no third copy.
                self.core.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(self.weights())})
                # What is cached was computed with the old weights.
                forgotten = self.core.reset_prefix_cache()
            if not forgotten:
                problem = "its prefix cache could not be emptied"
                continue
            found = self.check.compare(self._sampled(self.check.requests, 1.0))
            if found.policy_is_nan:
                raise UsageError(DIVERGED)
            if found.stale:
                problem = "its log-probabilities did not change although the policy's did"
            elif not found.difference <= self.tolerance:  # nan as well
                problem = (
                    f"its log-probabilities differ from the policy's by {found.difference:.3g} nats per token, "
                    f"more than vllm_tolerance={self.tolerance:g}"
                )
            else:
                return
        raise UsageError(
            f"vLLM did not take over the policy's weights in {PUSHES} tries: {problem}; what is saved is kept: "
            "continue with a larger vllm_tolerance if this is rounding, else with engine 'transformers'"
        )

    def close(self) -> None:
        """Shut vLLM down and give its memory back."""
        self.abandon()
        self._close()
        self.core = None


def _completion(output: Any) -> Completion:
    tokens = tuple(map(int, output.token_ids))
    logprobs = tuple(float(place[token].logprob) for token, place in zip(tokens, output.logprobs, strict=True))
    if output.finish_reason not in ("stop", "length"):
        raise UsageError(f"vLLM ended a completion by {output.finish_reason!r}; run with engine 'transformers'")
    return Completion(tokens, logprobs, output.finish_reason == "stop")


def _check_numbers(completions: Iterable[Completion]) -> None:
    if not all(math.isfinite(logprob) for completion in completions for logprob in completion.logprobs):
        raise UsageError(DIVERGED)


@contextmanager
def _told() -> Iterator[None]:
    """Tell an error of vLLM in one line."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # vLLM and what it is built on may raise anything
        raise UsageError(
            f"vLLM failed: {type(error).__name__}: {first_line(error)}; --traceback shows where; what is saved is "
            "kept: continue with --resume"
        ) from error
