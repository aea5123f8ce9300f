"""The policy that a run starts from or goes on with."""

from collections.abc import Callable
from pathlib import Path

from corrgrpo_train.config import Config
from corrgrpo_train.device import chosen_autocast
from corrgrpo_train.models import PolicyModel, load_policy_model
from corrgrpo_train.models.load import local_folder
from corrgrpo_train.models.lora import Adapter, add_adapter, load_adapter
from corrgrpo_train.policy import Policy
from corrgrpo_train.processes import Processes


def starting_policy(
    config: Config, saved: Path | None, device: str, processes: Processes, progress: Callable[[str], None]
) -> tuple[Policy, PolicyModel]:
    """Load the run's policy.

    Args:
        config: the run's settings.
        saved: the `policy/` folder of the checkpoint to go on from; None for a new run.
        device: where the model is put.
        processes: those that train it together.
        progress: called with one line before each long step.

    Returns:
        The policy, and the model under it with its tokenizer.

    Raises:
        UsageError: if it can't be loaded.
    """
    whole = saved is not None and not config.lora_rank
    source = str(saved) if whole else config.model
    sharded = config.sharding == "fsdp" and not processes.alone
    # What is sharded goes to the device layer by layer; the whole may not fit there.
    loaded = load_policy_model(source, device="cpu" if sharded else device, seed=config.seed, progress=progress)
    policy = Policy(
        loaded.model,
        autocast=chosen_autocast(config.autocast, device),
        share_prompts=config.shared_prompts,
        adapter=_adapter(config, saved, loaded) if config.lora_rank else None,
        gradient_checkpointing=config.gradient_checkpointing,
        processes=processes,
    )
    if sharded:
        policy.shard(device, with_reference=config.kl_coefficient != 0)
    return policy, loaded


def _adapter(config: Config, saved: Path | None, loaded: PolicyModel) -> Adapter:
    folder = None if config.model in ("default", "tiny") else local_folder(config.model)
    # A path is written out in full: the adapter may be loaded from another working folder.
    base = config.model if folder is None else str(folder.resolve())
    if saved is not None:
        return load_adapter(loaded.model, saved, base=base, seed=config.seed)
    return add_adapter(
        loaded.model,
        base=base,
        rank=config.lora_rank,
        alpha=config.lora_alpha,
        targets=config.lora_targets,
        seed=config.seed,
    )
