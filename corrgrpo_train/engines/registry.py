"""The engines by the name that settings give them."""

from collections.abc import Callable, Sequence

from corrgrpo_train.config import Config
from corrgrpo_train.engines.base import Engine
from corrgrpo_train.engines.push_check import PushCheck
from corrgrpo_train.engines.transformers import TransformersEngine
from corrgrpo_train.engines.vllm import VllmEngine
from corrgrpo_train.engines.vllm_start import start_vllm
from corrgrpo_train.policy import Policy

EngineMaker = Callable[[Policy, Sequence[int], Config, int], Engine]
"""Makes an engine from the policy, the end tokens, the settings and the longest episode in tokens."""


def make_transformers(policy: Policy, eos_ids: Sequence[int], config: Config, context: int) -> Engine:
    """An engine that shares the policy's weights."""
    return TransformersEngine(policy.generator, eos_ids)


def make_vllm(policy: Policy, eos_ids: Sequence[int], config: Config, context: int) -> Engine:
    """An engine of vLLM with a copy of the weights: float32 on a CPU, bfloat16 on a GPU unless `autocast` is off.

    Raises:
        UsageError: if vLLM is missing, can't start, or does not take the weights.
    """
    model = policy.model
    gpu = model.device.type == "cuda"
    dtype = config.vllm_args.get("dtype", "bfloat16" if gpu and config.autocast != "off" else "float32")
    memory = config.vllm_memory if config.vllm_memory is not None else 8.0 if gpu else 1.0
    core, close = start_vllm(model, dtype=dtype, context=context, memory=memory, arguments=config.vllm_args)
    exact = dtype in ("float32", "float")
    tolerance = config.vllm_tolerance if config.vllm_tolerance is not None else 1e-3 if exact else 0.1
    try:
        return VllmEngine(
            core,
            policy.plain_weights,
            PushCheck(model, context=context, exact=exact),
            eos_ids,
            tolerance=tolerance,
            close=close,
        )
    except BaseException:
        close()
        raise


ENGINES: dict[str, EngineMaker] = {"transformers": make_transformers, "vllm": make_vllm}
