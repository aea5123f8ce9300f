"""The training loop: roll out, score, estimate, update, validate, keep.

Read `Trainer.run` and `Trainer._step`; everything else they use is a function of its own elsewhere.
"""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import rich.console
import torch

from corrgrpo_train.checkpoint import best_checkpoint, damaged, save_checkpoint, step_of
from corrgrpo_train.component_gradients import gradient_products
from corrgrpo_train.config import Config, config_hash
from corrgrpo_train.console import Console
from corrgrpo_train.device import chosen_device, hand_memory_back, trim_heap
from corrgrpo_train.engines.registry import ENGINES
from corrgrpo_train.errors import UsageError, first_line
from corrgrpo_train.estimating import estimated
from corrgrpo_train.measures import step_metrics
from corrgrpo_train.processes import Processes, is_lost_process, started
from corrgrpo_train.reference import keep_reference, restore_reference
from corrgrpo_train.report.run_page import draw_finished
from corrgrpo_train.rollout import SCHEDULES, Chat
from corrgrpo_train.rollout.groups import GroupSampler
from corrgrpo_train.run_lock import RunLock
from corrgrpo_train.run_state import checkpoint_to_resume
from corrgrpo_train.sharding import load_whole_state, whole_state
from corrgrpo_train.starting_policy import starting_policy
from corrgrpo_train.step_rollout import episode_limits, rollout_step
from corrgrpo_train.torchrun import own_device
from corrgrpo_train.tracking import NoTracker, Tracker
from corrgrpo_train.transcripts import transcripts
from corrgrpo_train.update import Sample, update
from corrgrpo_train.validation import Validator
from corrgrpo_train.warm_start import References, reference_sequences, supervised_steps
from corrgrpo_train.weighting import Weighting, make_rule

logger = logging.getLogger(__name__)


def train(config: Config) -> Path:
    """Do a whole run and return its folder.

    Raises:
        UsageError: for settings that can't work, told in one line.
    """
    try:
        with started(own_device(chosen_device(config.device))) as processes, ExitStack() as closing:
            Trainer(config, closing, processes).run()
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise UsageError(
                f"not enough memory: lower token_budget={config.token_budget}, max_new_tokens or groups_per_step; "
                f"what {config.run_dir} holds is kept"
            ) from error
        if is_lost_process(error):
            raise UsageError(
                f"another process of the run has ended; what {config.run_dir} holds is kept: continue it with --resume"
            ) from error
        raise
    except OSError as error:  # what environments raise is dealt with where they are called
        raise UsageError(
            f"{error.filename or config.run_dir}: {error.strerror or error}; what the run folder holds is kept: make "
            "room or correct the folder, then continue with --resume"
        ) from error
    return config.run_dir


class Trainer:
    """A run: the policy, its environments and what is kept of it."""

    def __init__(self, config: Config, closing: ExitStack, processes: Processes) -> None:
        """Load the policy and make the environments; continue from the latest checkpoint on `resume`.

        Args:
            config: the run's settings.
            closing: closes what is opened here, also where a later part can't be made.
            processes: those that do the run together; the first writes the run folder and speaks to the user.
        """
        self.config, self.processes = config, processes
        self.console = Console(config, output=None if processes.first else rich.console.Console(quiet=True))
        closing.callback(self.console.close)
        torch.set_num_threads(config.threads or torch.get_num_threads())
        hand_memory_back()
        device = own_device(chosen_device(config.device))
        if config.resume and processes.first:
            closing.callback(RunLock(config.run_dir).close)
        self.checkpoint = checkpoint_to_resume(config, processes) if config.resume else None
        saved = None if self.checkpoint is None else self.checkpoint.policy_dir
        self.policy, loaded = starting_policy(config, saved, device, processes, self.console.note)
        self.tokenizer = loaded.tokenizer
        self.chat = Chat(loaded.tokenizer, loaded.stop_token_ids)
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters(),
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )
        self.limits = episode_limits(config, loaded.model)
        shared: dict[str, Any] = {
            "max_prompt_tokens": config.max_prompt_tokens,
            "workers": config.env_workers,
            "timeout": config.env_timeout,
            "processes": processes,
            "schedule": SCHEDULES[config.schedule],
        }
        self.sampler = GroupSampler(
            config.env,
            config.env_arguments,
            self.chat,
            groups=config.groups_per_step,
            group_size=config.group_size,
            seed=config.seed,
            **shared,
        )
        closing.callback(self.sampler.close)
        self.validator = (
            Validator(
                config.env,
                config.env_arguments,
                self.chat,
                split=config.validation_split,
                tasks=config.validation_tasks,
                **shared,
            )
            if config.validation_tasks
            else None
        )
        if self.validator is not None:
            closing.callback(self.validator.close)
        # Before the run folder is made: an environment without references leaves nothing behind.
        needed = config.warm_start if self.checkpoint is None else 0
        self.references = References()
        if needed:
            self.references = reference_sequences(self.sampler, self.chat, needed, self.limits.episode_tokens)
        self.engine = ENGINES[config.engine](self.policy, sorted(self.chat.eos_ids), config, self.limits.episode_tokens)
        closing.callback(self.engine.close)
        self.weighting = Weighting(make_rule(config.weighting_name, config.weighting_args))
        self.best = -math.inf
        self.validated_at: int | None = None
        self.had_signal = False
        self.validations: dict[str, dict[str, float]] = {}
        self.tracker = self._tracker()
        closing.callback(self.tracker.close)
        if not config.resume and processes.first:
            closing.callback(RunLock(config.run_dir).close)

    # ---- the loop ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Warm start, then steps; validation and checkpoints on the way."""
        config = self.config
        start = self._restore()
        self.console.start(config.steps)
        if start is None:
            self._validate(0, "base")
            if config.warm_start:
                self._warm_start()
                self._validate(0, "warm_start")
            if config.kl_coefficient:
                keep_reference(self.policy, config.run_dir)
            self._save(0)
            start = 0
        for step in range(start + 1, config.steps + 1):
            self._step(step)
            if step == config.steps or (config.validation_every and step % config.validation_every == 0):
                self._validate(step, "train")
            if step == config.steps or (config.checkpoint_every and step % config.checkpoint_every == 0):
                self._save(step)
        if self.processes.first:
            if config.report and (config.steps or self.validator is not None):
                self._draw()
            self.console.finish(self._summary())

    def _step(self, step: int) -> None:
        """One rollout and its updates."""
        config = self.config
        timings: dict[str, float] = {}
        with _timed(timings, "seconds/rollout"), self.policy.gathered():
            drawn = rollout_step(self.sampler, self.engine, self.limits, config, step)
            episodes = drawn.episodes
        with _timed(timings, "seconds/update"):
            trim_heap()
            weights = self.weighting.weigh(episodes, step)
            names, result = estimated(episodes, config, step)
            advantages = [0.0] * len(episodes) if result is None else result.advantages.tolist()
            samples = [
                Sample(episode.tokens, episode.group, advantage)
                for episode, advantage in zip(episodes, advantages, strict=True)
                if episode.valid
            ]
            self.weighting.after_rollout(
                episodes,
                self.optimizer.param_groups[0]["lr"],
                lambda layers: self.processes.of_first(
                    lambda: gradient_products(self.policy, episodes, self.weighting.base, config, step, layers)
                ),
            )
            learned = update(self.policy, self.optimizer, samples, config, done=(step - 1) * config.updates_per_rollout)
            self.engine.update_weights()
        self.had_signal = self.had_signal or any(advantages)
        metrics = step_metrics(episodes, names, result, {**drawn.counts, **learned, **weights})
        metrics["tasks/position"] = float(self.sampler.position)
        metrics["tasks/too_long"] = float(self.sampler.too_long)
        tokens = sum(episode.tokens.completion_length for episode in episodes)
        timings["tokens_per_second/rollout"] = tokens / timings["seconds/rollout"]
        timings["tokens_per_second/update"] = metrics["tokens/trained"] / timings["seconds/update"]
        self.tracker.log(step, metrics)
        self.tracker.log_timings(step, timings)
        self.tracker.log_episodes(step, names, episodes)
        first = episodes[: config.transcripts_per_step]
        self.tracker.log_transcripts(step, transcripts(first, advantages, self.tokenizer))
        self.console.step(step, metrics, timings)

    def _warm_start(self) -> None:
        config = self.config
        sequences, too_long = self.references.sequences, self.references.too_long
        if too_long:
            self.console.note(f"{too_long} reference answers are longer than an episode may be and are left out")
        if len(sequences) < config.warm_start:
            self.console.note(f"the environment has only {len(sequences)} reference answers for the warm start")
        losses = supervised_steps(
            self.policy,
            sequences,
            batch=config.warm_start_batch,
            epochs=config.warm_start_epochs,
            learning_rate=config.warm_start_learning_rate,
            max_grad_norm=config.max_grad_norm,
            token_budget=config.token_budget,
        )
        for number, loss in enumerate(losses, start=1):
            self.tracker.log(0, {"warm_start/step": number, "warm_start/loss": loss}, "warm_start")
            self.console.note(f"warm start, step {number}: loss {loss:.3f} nats per token")
        self.engine.update_weights()

    def _validate(self, step: int, phase: str) -> None:
        if self.validator is None:
            return
        with self.policy.gathered():
            results, episodes = self.validator.run(self.engine, self.limits)
        if self.config.select_by not in results:
            raise UsageError(f"select_by {self.config.select_by!r} is not measured; allowed: {', '.join(results)}")
        self.weighting.after_validation(episodes, results, step)
        self.validations["last"], self.validated_at = results, step
        self.validations.setdefault(phase, results)
        self.tracker.log(step, {f"validation/{name}": value for name, value in results.items()}, phase)
        self.tracker.log_transcripts(step, transcripts(episodes, None, self.tokenizer), name=f"validation_{phase}")
        self.console.validation(step, results, phase)

    # ---- what is kept ------------------------------------------------------------------------------------

    def _save(self, step: int) -> None:
        # A value from an earlier step would name a policy the best that nobody has measured.
        value = self.validations["last"][self.config.select_by] if self.validated_at == step else -math.inf
        best = value > self.best
        self.best = max(self.best, value)
        state = {
            "config_hash": config_hash(self.config),
            "position": self.sampler.position,
            "too_long": self.sampler.too_long,
            "best": self.best if math.isfinite(self.best) else None,
            "had_signal": self.had_signal,
            "validations": self.validations,
            "weighting": self.weighting.state_dict(),
        }
        optimizer_state = whole_state(self.optimizer)
        with self.policy.gathered():
            if self.processes.first:
                save_checkpoint(
                    self.config.run_dir,
                    step,
                    model=self.policy,
                    tokenizer=self.tokenizer,
                    optimizer_state=optimizer_state,
                    state=state,
                    best=best,
                    keep=self.config.keep_checkpoints,
                )
            self.processes.wait()

    def _restore(self) -> int | None:
        """Take over the checkpoint's state; return its step, or None for a new run."""
        if self.checkpoint is None:
            return None
        state = self.checkpoint.state
        try:
            load_whole_state(self.optimizer, self.checkpoint.optimizer_state)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise UsageError(damaged(self.checkpoint, f"the optimiser's state: {first_line(error)}")) from error
        try:
            self.weighting.load_state_dict(state["weighting"])
        except ValueError as error:
            raise UsageError(damaged(self.checkpoint, first_line(error))) from error
        self.sampler.position, self.sampler.too_long = state["position"], state["too_long"]
        self.best = -math.inf if state["best"] is None else state["best"]
        self.had_signal, self.validations = state["had_signal"], state["validations"]
        if self.config.kl_coefficient:
            restore_reference(self.policy, self.config.run_dir)
        left = self.config.steps - self.checkpoint.step
        self.console.note(
            f"continuing after step {self.checkpoint.step}"
            if left > 0
            else f"all {self.config.steps} steps were done before; a larger --steps goes on"
        )
        return self.checkpoint.step

    def _tracker(self) -> Tracker | NoTracker:
        if not self.processes.first:
            return NoTracker()
        if not self.config.resume:
            return Tracker.start(self.config, self.console.note)
        step = None if self.checkpoint is None else self.checkpoint.step
        return Tracker.resume(self.config, step, self.console.note)

    def _draw(self) -> None:
        """Draw the finished run; one that can't be drawn has been trained and kept all the same."""
        try:
            draw_finished(self.config.run_dir)
        except (UsageError, OSError) as error:
            self.console.note(
                f"the report was not drawn: {first_line(error)}; "
                f"again: python -m corrgrpo_train.report {self.config.run_dir}"
            )

    def _summary(self) -> dict[str, Any]:
        best = best_checkpoint(self.config.run_dir)
        return {
            "run_dir": str(self.config.run_dir),
            "had_signal": self.had_signal,
            "validations": self.validations,
            "best_step": None if best is None else step_of(best),
        }


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings[name] = time.perf_counter() - start
