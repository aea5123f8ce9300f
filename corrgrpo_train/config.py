"""`Config`: every setting of a training run, flat, with its default and its meaning.

The command line, YAML files, presets and `docs/configuration.md` are all read off this one dataclass.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from corrgrpo_envs.errors import suggestion
from corrgrpo_envs.registration import full_id, with_version
from corrgrpo_train.bundles import following
from corrgrpo_train.errors import UsageError
from corrgrpo_train.plain_yaml import read_mapping
from corrgrpo_train.setting_types import docs_of, typed, types_of

OVERLONG = "overlong"
"""The component that the trainer adds with `overlong_share`; `reward_weights` may give its weight."""


@dataclass(kw_only=True)
class Config:
    """Settings of a training run.

    Raises:
        UsageError: if a value is not of its field's type. Ranges and names: `config_checks.validate`.
    """

    env: str
    """Environment id; "RLLA-v0" or "RLLA" means "corrgrpo/RLLA-v0"; "package:namespace/Name-v0" imports the package."""
    env_args: dict[str, Any] = field(default_factory=dict)
    """Constructor arguments of the environment."""
    reward_weights: dict[str, float] = field(default_factory=dict)
    """Weights of reward components that differ from the environment's."""
    method: str = "corrgrpo"
    """Advantage estimator; "module:name" imports the module that registers it first."""
    method_args: dict[str, Any] = field(default_factory=dict)
    """Options of the estimator."""
    weighting: str = "fixed"
    """Rule for the weights during the run; "module:name" imports the module that registers it first."""
    weighting_args: dict[str, Any] = field(default_factory=dict)
    """Options of the weighting."""
    objective: str = "grpo"
    """Surrogate that the update maximises: "grpo", "dapo" or "cispo"."""
    mode: str | None = None
    """Published algorithm whose settings are taken where not given: "dapo", "cispo", "gdpo" or "dr_grpo"."""
    model: str = "default"
    """Policy to start from: a hub id or a folder; "default" is a small model that needs no GPU."""
    lora_rank: int = 0
    """Rank of a LoRA adapter that is trained in place of the model's weights; 0: train the weights."""
    lora_alpha: float | None = None
    """The adapter's output is scaled by lora_alpha / lora_rank; null: twice the rank."""
    lora_targets: str = "all-linear"
    """Layers with an adapter, with commas between ("q_proj,v_proj"); "all-linear": all but the output layer."""
    seed: int = 0
    """Seed of everything random in the run."""
    output: str | None = None
    """Run folder; null: runs/ENV-METHOD-sSEED, with the mode before the method."""
    resume: bool = False
    """Continue the run in the run folder from its latest checkpoint."""

    steps: int = 100
    """Rollouts, each followed by its updates."""
    groups_per_step: int = 8
    """Tasks per rollout; each gets one group of episodes."""
    group_size: int = 8
    """Episodes per group."""
    updates_per_rollout: int = 1
    """Optimiser updates on each rollout, each on its own part of it."""
    dynamic_sampling: str | None = None
    """Groups in which this is equal for all episodes are replaced: "reward" or a component's name; null: none are."""
    dynamic_sampling_attempts: int = 10
    """Rollouts per step at most; then groups without differences fill what is still missing."""
    overlong_share: float = 0.0
    """Last share of overlong_length over which component "overlong" falls from 0 to -1; 0: no such component."""
    overlong_length: int | None = None
    """Sampled tokens of an episode at which the penalty is full; null: max_new_tokens."""

    max_prompt_tokens: int = 2048
    """Longest first prompt in tokens; tasks with a longer one are left out and counted."""
    max_new_tokens: int = 512
    """Longest completion of one turn in tokens."""
    max_episode_tokens: int | None = None
    """Longest episode in tokens, prompt included; null: the model's context."""
    temperature: float = 1.0
    """Sampling temperature; log-probabilities are taken at it as well."""
    engine: str = "transformers"
    """What samples: "transformers" (everywhere) or "vllm" (docs/vllm.md)."""
    schedule: str = "lockstep"
    """Episodes take turns together ("lockstep"), or each goes on as soon as it can ("async"; engine "vllm" only)."""
    vllm_memory: float | None = None
    """GiB of key-value cache of engine "vllm"; null: 1 on a CPU, 8 on a GPU."""
    vllm_tolerance: float | None = None
    """Mean difference of vLLM's log-probabilities from the policy's after a push that passes; null: by float type."""
    vllm_args: dict[str, Any] = field(default_factory=dict)
    """Further engine arguments of vLLM."""

    learning_rate: float = 1e-6
    """Learning rate (AdamW)."""
    weight_decay: float = 0.01
    """Decoupled weight decay."""
    beta1: float = 0.9
    """Decay of AdamW's first moment."""
    beta2: float = 0.999
    """Decay of AdamW's second moment."""
    warmup_steps: int = 0
    """Updates over which the learning rate rises linearly from 0."""
    max_grad_norm: float = 1.0
    """Gradients of a larger norm are scaled down to it."""
    clip_low: float = 0.2
    """Probability ratios are clipped below at 1 - clip_low."""
    clip_high: float = 0.2
    """Probability ratios are clipped above at 1 + clip_high; objective "dapo": 0.28."""
    cispo_max_ratio: float | None = None
    """Largest importance weight of objective "cispo"; null: 5."""
    kl_coefficient: float = 0.0
    """Weight of the divergence (k3) from the policy before reinforcement learning; 0: no reference policy."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    importance_correction: str = "none"
    """Correction for an engine whose probabilities differ: "none", "truncate" or "mask"; engine "vllm": "truncate"."""
    importance_cap: float | None = None
    """Largest importance weight of the correction; null: 2."""
    aggregation: str = "sequence"
    """Mean of the loss: per completion ("sequence"), token ("token") or aggregation_length ("constant")."""
    aggregation_length: int | None = None
    """Tokens by which aggregation "constant" divides each completion's sum."""

    warm_start: int = 0
    """Reference answers to imitate before reinforcement learning; 0: none."""
    warm_start_batch: int = 8
    """Reference answers per warm-start update."""
    warm_start_epochs: int = 1
    """Passes over the reference answers."""
    warm_start_learning_rate: float = 2e-5
    """Learning rate of the warm start."""

    validation_every: int = 10
    """Steps between validations; 0: only before and after training."""
    validation_tasks: int = 32
    """Tasks per validation; 0: no validation."""
    validation_split: str = "validation"
    """Split that is validated on; never "test"."""
    select_by: str = "reward"
    """What picks the best of the checkpoints saved at a validation: "reward", "components/NAME" or "metrics/NAME"."""

    checkpoint_every: int = 10
    """Steps between checkpoints; 0: only at the end."""
    keep_checkpoints: int = 2
    """Latest checkpoints that are kept, beside the best one."""
    transcripts_per_step: int = 4
    """Episodes per step that are saved as text."""
    tensorboard: bool = True
    """Write TensorBoard event files."""
    track: str | None = None
    """Tracker that gets the metrics as well: "wandb" or "trackio"; null: none."""
    track_args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the tracker's `init`: project, name, mode, ..."""
    report: bool = True
    """Write report.html and curves.png when the run ends."""
    quiet: bool = False
    """Show no progress, only notes and the final summary."""

    token_budget: int = 4096
    """Tokens per micro-batch; smaller takes less memory."""
    sharding: str = "none"
    """With several processes: each has all weights ("none") or a part of them ("fsdp")."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of layers for the backward pass: less memory, up to a third more time."""
    shared_prompts: bool = True
    """Compute the prompt of a group once for all its completions."""
    autocast: str = "auto"
    """Precision of forward passes: "auto", "bf16" or "off" (float32)."""
    device: str = "auto"
    """Device: "auto", "cpu", "cuda", "cuda:N" or "mps"."""
    threads: int | None = None
    """CPU threads of the tensor library; null: its own choice."""
    env_workers: int = 1
    """Threads that step environments."""
    env_timeout: float | None = 600.0
    """Seconds after which a call of an environment counts as failed; null: wait, in the caller's thread."""

    def __new__(cls, **given: Any) -> Self:
        """Remember which settings were given: a mode decides the others alone."""
        config = super().__new__(cls)
        config.__dict__["_given"] = frozenset(given)
        return config

    def __post_init__(self) -> None:
        given = self.__dict__.pop("_given")
        for name, hint in field_types().items():
            setattr(self, name, typed(name, getattr(self, name), hint))
        self.env = with_version(self.env)  # what is written down means the same when there are newer ones
        for name, value in following({name: getattr(self, name) for name in given}).items():
            setattr(self, name, value)
        if self.mode is not None and self.aggregation == "constant" and self.aggregation_length is None:
            self.aggregation_length = self.max_new_tokens

    @property
    def env_id(self) -> str:
        """The full Gymnasium id: a bare name is one of this project's environments."""
        return full_id(self.env)

    @property
    def env_arguments(self) -> dict[str, Any]:
        """What the environment's constructor is called with, the weights of its own components included."""
        weights = dict(self.reward_weights)
        if self.overlong_share:
            weights.pop(OVERLONG, None)
        return {**self.env_args, **({"reward_weights": weights} if weights else {})}

    @property
    def method_name(self) -> str:
        """The estimator's registered name, without the module to import."""
        return self.method.rpartition(":")[2]

    @property
    def weighting_name(self) -> str:
        """The weighting's registered name, without the module to import."""
        return self.weighting.rpartition(":")[2]

    @property
    def algorithm(self) -> str:
        """The estimator's name, with the mode before it where that says more."""
        return self.method_name if self.mode in (None, self.method_name) else f"{self.mode} {self.method_name}"

    @property
    def run_dir(self) -> Path:
        """The run folder."""
        name = re.split("[:/]", self.env_id)[-1]
        return Path(self.output or f"runs/{name}-{self.algorithm.replace(' ', '-')}-s{self.seed}")


SECTIONS = {
    "env": "What is trained",
    "steps": "Size of a step",
    "max_prompt_tokens": "Sampling",
    "learning_rate": "Update",
    "warm_start": "Warm start",
    "validation_every": "Validation",
    "checkpoint_every": "What is kept and shown",
    "token_budget": "Machine",
}
"""Headings for readers, by the first field that stands under them."""

NEUTRAL = frozenset(
    {
        "output",
        "resume",
        "steps",
        "checkpoint_every",
        "keep_checkpoints",
        "transcripts_per_step",
        "tensorboard",
        "track",
        "track_args",
        "report",
        "quiet",
        "vllm_tolerance",
        "env_workers",
        "env_timeout",
        "sharding",
        "mode",
    }
)
"""Fields that may differ when a run is continued: they do not change any step's results."""


def field_types() -> dict[str, Any]:
    """The type of every field of `Config`, in order."""
    return types_of(Config)


def field_docs() -> dict[str, str]:
    """The one-line meaning of every field of `Config`, in order."""
    return docs_of(Config)


def read_settings(text: str, source: str) -> dict[str, Any]:
    """Read the settings in a YAML text.

    Args:
        text: a mapping of field names to values; any of them.
        source: where the text is from, for messages.

    Raises:
        UsageError: if it is not such a mapping, or a key or value is wrong.
    """
    settings = read_mapping(text, source)
    types = field_types()
    for name in settings:
        if name not in types:
            near = suggestion(name, types) or " --help lists the settings."
            raise UsageError(f"{source}: there is no setting {name!r}.{near}")
    try:
        return {name: typed(name, value, types[name]) for name, value in settings.items()}
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def to_yaml(config: Config) -> str:
    """The whole configuration as YAML in ASCII, in the order of the fields."""
    # Unicode left as it is would not be read back exactly: U+0085 counts as a line break.
    return yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=False, width=1000)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read the settings in a YAML file; see `read_settings`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{path} cannot be read: {reason}; give a YAML file of settings") from None
    return read_settings(text, str(path))


def from_yaml(path: str | Path) -> Config:
    """Read a configuration from a YAML file; settings that it leaves out have their defaults.

    Raises:
        UsageError: if it cannot be read, names no environment, or a key or value is wrong.
    """
    return complete(read_yaml(path), str(path))


def complete(settings: Mapping[str, Any], source: str = "the configuration") -> Config:
    """Make a configuration from settings and defaults.

    Raises:
        UsageError: if no environment is named.
    """
    if "env" not in settings:
        raise UsageError(f"{source} names no environment: give one, for example --env RLLA-v0")
    return Config(**settings)


def results_of(config: Config) -> dict[str, Any]:
    """The settings on which the results of a step depend."""
    settings = {name: value for name, value in asdict(config).items() if name not in NEUTRAL}
    return {**settings, "env": config.env_id}


def config_hash(config: Config) -> str:
    """Sixteen hexadecimal digits over all that results depend on: a run continues only under an equal one."""
    text = json.dumps(results_of(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
