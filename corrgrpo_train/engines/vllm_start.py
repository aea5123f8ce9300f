"""Starting vLLM inside this process, beside the policy."""

import gc
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import Any

import torch

from corrgrpo_envs.errors import unknown
from corrgrpo_train.engines.vllm_arguments import MISSING, check_arguments, installed
from corrgrpo_train.errors import UsageError, first_line

# Read by vLLM while it starts. What is set outside stays, but for the first, without which nothing works.
_NEEDED = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # the engine lives in this process
_WANTED = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else it binds this process's threads to cores
    "VLLM_NO_USAGE_STATS": "1",  # else it reports to a server
    "HF_HUB_OFFLINE": "1",  # all that it needs is here
}
_QUIET = {"VLLM_CONFIGURE_LOGGING": "0"}  # where nobody asked for vLLM's log by VLLM_LOGGING_LEVEL


def start_vllm(
    model: Any, *, dtype: str, context: int, memory: float, arguments: Mapping[str, Any]
) -> tuple[Any, Callable[[], None]]:
    """Start vLLM for the policy's architecture, with random weights.

    Args:
        model: the policy's causal language model; only its configuration is used.
        dtype: float type of vLLM's weights and cache.
        context: longest sequence in tokens.
        memory: GiB of key-value cache.
        arguments: further engine arguments of vLLM.

    Returns:
        the `vllm.LLMEngine`, and a function that shuts it down.

    Raises:
        UsageError: if vLLM is missing, does not know the architecture or an argument, or has not enough memory.
    """
    if not installed():
        raise UsageError(MISSING)
    grouped = torch.distributed.is_available() and torch.distributed.is_initialized()
    if grouped and torch.distributed.get_world_size() > 1:
        raise UsageError("engine 'vllm' works with one training process only; use engine 'transformers' for several")
    check_arguments(arguments)
    folder = tempfile.mkdtemp(prefix="vllm-")
    set_num_threads = torch.set_num_threads
    core: Any = None

    def close() -> None:
        with suppress(Exception):  # what matters is written; a failure here costs nothing
            if core is not None:
                core.engine_core.shutdown()
            if not grouped:  # else the group is somebody else's
                from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

                cleanup_dist_env_and_memory()
        shutil.rmtree(folder, ignore_errors=True)
        gc.collect()

    try:
        _write_config(model, folder)
        with _environment():
            core = _start(folder, dtype, context, memory, arguments)
    except UsageError:
        close()
        raise
    except Exception as error:  # vLLM and what it is built on may raise anything
        close()
        raise UsageError(
            f"vLLM can't start: {_reason(error)}; lower or raise vllm_memory={memory:g} (GiB of key-value cache) or "
            "lower max_episode_tokens if that is about memory, else use engine 'transformers'"
        ) from error
    finally:
        # Its CPU build puts a function there that does nothing.
        torch.set_num_threads = set_num_threads
    return core, close


def _start(folder: str, dtype: str, context: int, memory: float, arguments: Mapping[str, Any]) -> Any:
    from vllm import EngineArgs, LLMEngine
    from vllm.usage.usage_lib import UsageContext

    names = {field.name for field in fields(EngineArgs)}
    for name in arguments:
        if name not in names:
            raise UsageError(str(unknown("vllm_args", name, sorted(names))))
    settings = {
        "dtype": dtype,
        "seed": 0,  # every request has its own
        "enforce_eager": not torch.cuda.is_available(),
        "disable_log_stats": True,
        "enable_prefix_caching": True,  # a group shares its prompt, a turn all before it
        # A share that is checked though the cache's size is given: the policy is on the same device already.
        "gpu_memory_utilization": 0.05,
        **arguments,
    }
    engine_args = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        max_model_len=context,
        kv_cache_memory_bytes=int(memory * 2**30),
        # Not vLLM's default, which is that of temperature 1.
        logprobs_mode="processed_logprobs",
        generation_config="vllm",
        **settings,
    )
    return LLMEngine.from_engine_args(engine_args, usage_context=UsageContext.LLM_CLASS)


def _write_config(model: Any, folder: str) -> None:
    """Write the configuration alone: the weights are pushed."""
    config = model.config.__class__.from_dict(model.config.to_dict())
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)


@contextmanager
def _environment() -> Iterator[None]:
    """Set what vLLM reads while it starts, and put everything back."""
    before = {name: os.environ.get(name) for name in (*_NEEDED, *_WANTED, *_QUIET)}
    quiet = "VLLM_LOGGING_LEVEL" not in os.environ
    os.environ.update({**{name: value for name, value in _WANTED.items() if name not in os.environ}, **_NEEDED})
    if quiet:
        os.environ.update(_QUIET)
        # Warnings of its own way of working: what goes wrong raises.
        logging.getLogger("vllm").setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecations inside
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _reason(error: Exception) -> str:
    """The error in one line; a validation error's first message rather than its heading."""
    with suppress(Exception):
        details = error.errors()  # type: ignore[attr-defined]
        return " ".join(str(details[0]["msg"]).split())[:500]
    return f"{type(error).__name__}: {first_line(error)}"
