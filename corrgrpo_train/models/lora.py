"""LoRA: a small trained adapter on a frozen model, through the peft library."""

import json
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor

from corrgrpo_train.errors import UsageError, first_line

logger = logging.getLogger(__name__)

CONFIG, BASE = "adapter_config.json", "base.json"


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in the layers of a model.

    Attributes:
        peft: the peft model around the transformers model.
        base: what the model without the adapter is called for `load_policy_model`.
        seed: the seed that goes with that name; only `tiny` has use for it.
    """

    peft: Any
    base: str
    seed: int

    def switched_off(self) -> AbstractContextManager[None]:
        """Compute without the adapter for as long as the context lasts."""
        off: AbstractContextManager[None] = self.peft.disable_adapter()
        return off

    def save_pretrained(self, folder: str, state: dict[str, Tensor] | None = None) -> None:
        """Write the adapter and what it belongs to; the base model's weights are not written.

        Args:
            folder: an existing folder.
            state: the weights to write instead of the model's own, under the model's names.
        """
        if state is not None:
            state = {f"base_model.model.{name}": weight for name, weight in state.items()}
        self.peft.save_pretrained(folder, state_dict=state)
        text = json.dumps({"model": self.base, "seed": self.seed}, indent=1)
        (Path(folder) / BASE).write_text(text + "\n", encoding="utf-8")


def add_adapter(model: Any, *, base: str, rank: int, alpha: float | None, targets: str, seed: int) -> Adapter:
    """Put a fresh adapter into the model's layers and freeze everything else.

    The model computes what it did before: one of an adapter's two matrices begins as zeros.

    Args:
        model: a transformers model, changed in place.
        base: what the model is called, for those who load the adapter later.
        rank: inner size of the adapter's matrices.
        alpha: the adapter's output is scaled by alpha / rank; None takes twice the rank.
        targets: names of the layers that get one, with commas between; "all-linear" takes all but the output layer.
        seed: of the other matrix's random numbers, and of the base model.

    Raises:
        UsageError: if the model has no such layers.
    """
    names = [name.strip() for name in targets.split(",") if name.strip()]
    settings = LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,  # type: ignore[arg-type]
        target_modules="all-linear" if names == ["all-linear"] else names,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            peft = get_peft_model(model, settings)
        except ValueError as error:
            linear = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
            raise UsageError(
                f"lora_targets {targets!r} do not fit the model: allowed are all-linear and, with commas between, "
                f"{', '.join(linear)} ({first_line(error)})"
            ) from error
    return Adapter(peft, base, seed)


def load_adapter(model: Any, folder: Path, *, base: str, seed: int) -> Adapter:
    """Put a saved adapter into the model's layers, ready to be trained further.

    Raises:
        UsageError: if it is damaged or belongs to another model.
    """
    try:
        peft = PeftModel.from_pretrained(model, str(folder), is_trainable=True)
    except Exception as error:  # what the library raises on a damaged or foreign file is of any kind
        raise UsageError(f"the adapter in {folder} cannot be used on model {base!r}: {first_line(error)}") from error
    return Adapter(peft, base, seed)


def holds_adapter(folder: Path) -> bool:
    """Whether the folder holds an adapter instead of a whole model."""
    return (folder / CONFIG).is_file()


def base_of(folder: Path) -> tuple[str, int]:
    """The name and seed of the model that a saved adapter belongs to.

    Raises:
        UsageError: if the folder does not say.
    """
    try:
        if (folder / BASE).is_file():
            content = json.loads((folder / BASE).read_text(encoding="utf-8"))
            return str(content["model"]), int(content["seed"])
        # Made by the library itself.
        return str(json.loads((folder / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]), 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the adapter in {folder} does not say which model it belongs to: {first_line(error)}"
        ) from error


def merged_model(adapter: Adapter) -> Any:
    """The transformers model with the adapter added into its weights for good."""
    return adapter.peft.merge_and_unload(safe_merge=True)


def merged_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The weights that a plain model would need to compute the same, one by one, under their plain names.

    The model is left as it is: adapters are added to copies. Without adapters these are the model's own weights.
    """
    changes = {
        name: module
        for name, module in model.named_modules()
        if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer")
    }
    for name, weight in model.state_dict().items():
        if ".lora_" in name:
            continue
        owner, plain = name.rpartition(".base_layer.")[::2]
        if owner in changes:
            delta = changes[owner].get_delta_weight("default") if plain == "weight" else 0
            yield f"{owner}.{plain}", weight.detach() + delta
        else:
            yield name, weight.detach()
