"""`LocalSampler`: a model in this process, sampled by the trainer's own engines and schedules."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from corrgrpo_train.config import Config
from corrgrpo_train.device import chosen_device
from corrgrpo_train.engines.registry import ENGINES
from corrgrpo_train.errors import UsageError
from corrgrpo_train.evaluate.sample import Job, sample_of
from corrgrpo_train.evaluate.sampler import Done
from corrgrpo_train.evaluate.settings import EnvironmentChoice, Settings
from corrgrpo_train.models import load_policy_model
from corrgrpo_train.models.load import local_folder
from corrgrpo_train.policy import Policy
from corrgrpo_train.rollout import SCHEDULES, Chat, EpisodeRunner, Limits, Start

_ENDS = 2**20  # bytes that are read at either end of a file of weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What does not change results.

    Attributes:
        device: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:N"` or `"mps"`.
        threads: CPU threads of the tensor library; None is its own choice.
        vllm_memory: GiB of vLLM's key-value cache; None is 1 on a CPU, 8 on a GPU.
        workers: threads in which environments step.
        timeout: seconds after which a call of an environment counts as failed; None waits for ever.
    """

    device: str = "auto"
    threads: int | None = None
    vllm_memory: float | None = None
    workers: int = 1
    timeout: float | None = 600.0


class LocalSampler:
    """Plays units of episodes with a model in this process; an episode does not depend on which others are played."""

    def __init__(self, settings: Settings, machine: Machine, progress: Callable[[str], None]) -> None:
        """Load the model.

        Args:
            settings: of the evaluation.
            machine: where it runs.
            progress: called with one line before each long step.

        Raises:
            UsageError: if it can't be loaded.
        """
        self.settings, self.machine = settings, machine
        if machine.threads is not None:
            torch.set_num_threads(machine.threads)
        config = Config(
            env=settings.environments[0].name,
            engine=settings.engine,
            vllm_args=dict(settings.vllm_args),
            vllm_memory=machine.vllm_memory,
        )
        loaded = load_policy_model(settings.model, device=chosen_device(machine.device), seed=0, progress=progress)
        self.chat = Chat(loaded.tokenizer, loaded.stop_token_ids)
        context = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None) or 2**31
        room = min(settings.max_episode_tokens or context, context)
        self.limits = Limits(settings.max_new_tokens, room)
        policy = Policy(loaded.model, share_prompts=False)
        self.engine = ENGINES[settings.engine](policy, loaded.stop_token_ids, config, room)

    def play(
        self, choice: EnvironmentChoice, units: Sequence[Sequence[Job]], starts: Mapping[str, Start], done: Done
    ) -> None:
        """Play the units one after the other, all episodes of a unit together."""
        count = max(map(len, units), default=0)
        runners = [EpisodeRunner(choice.name, choice.arguments, timeout=self.machine.timeout) for _ in range(count)]
        try:
            for unit in units:
                episodes = SCHEDULES[self.settings.schedule](
                    [(job.index, job.sample, starts[job.task]) for job in unit],
                    runners,
                    self.engine,
                    self.chat,
                    self.limits,
                    temperature=self.settings.temperature,
                    key=(self.settings.seed,),
                    workers=self.machine.workers,
                )
                done(
                    [
                        sample_of(job, episode, episode.tokens.completion_length)
                        for job, episode in zip(unit, episodes, strict=True)
                    ]
                )
        except torch.OutOfMemoryError as error:
            raise UsageError(
                f"not enough memory for {count} episodes at a time: lower --batch (which makes it another evaluation), "
                "--max-episode-tokens or --vllm-memory"
            ) from error
        finally:
            for runner in runners:
                runner.close()

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()


def fingerprint(model: str) -> str:
    """Sixteen hexadecimal digits that change with a local model's weights; empty for a model by name.

    Sizes, and what stands at either end of the files: an update changes every tensor.
    """
    folder = None if model in ("default", "tiny") else local_folder(model)
    if folder is None:
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".safetensors", ".bin", ".json", ".jinja", ".model") and path.is_file():
            digest.update(f"{path.name} {path.stat().st_size}\n".encode())
            digest.update(_ends(path))
    return digest.hexdigest()[:16]


def _ends(path: Path) -> bytes:
    with path.open("rb") as file:
        first = file.read(_ENDS)
        file.seek(max(0, path.stat().st_size - _ENDS))
        return first + file.read()
