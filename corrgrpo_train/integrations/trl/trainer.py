"""TRL's `GRPOTrainer` with any estimator of `corrgrpo_train.advantages` in place of its own advantages."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from corrgrpo_train.advantages import ESTIMATORS, estimate
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.trl import contract
from corrgrpo_train.integrations.trl.parsing import guarded_parsing
from corrgrpo_train.integrations.trl.rewards import ComponentReward
from corrgrpo_train.measures import flat_diagnostics

contract.check_class(GRPOTrainer)


class MultiRewardGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL's types are not read
    """`GRPOTrainer` whose advantages come from an estimator that sees every reward function's values.

    Everything else is TRL's: generation, `loss_type`, KL, vLLM, logging. The estimator's diagnostics are logged under
    the names that a run of this package's own trainer has, `estimator/…`.

    A completion for which a reward function of non-zero weight gives None is left out of its group and gets the
    advantage 0 (TRL itself counts the missing reward as 0).
    """

    def __init__(
        self,
        *args: Any,
        estimator: str = "corrgrpo",
        estimator_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Make the trainer.

        Args:
            *args: of `GRPOTrainer`.
            estimator: a key of `corrgrpo_train.advantages.ESTIMATORS`.
            estimator_options: the estimator's own.
            **kwargs: of `GRPOTrainer`. Reward functions of a `TrlTask` bring their weights.

        Raises:
            ValueError: for an unknown estimator or option.
            UsageError: if settings contradict the estimator or the environment, or TRL's inside has changed.
        """
        self.estimator, self.estimator_options = estimator, dict(estimator_options or {})
        # Names and options are checked before anything is loaded.
        estimate(estimator, torch.zeros(2, 1), [0, 0], [1.0], lengths=[1, 1], **self.estimator_options)
        super().__init__(*args, **kwargs)
        contract.check_trainer(self)
        self._check_settings()
        self._check_end_tokens()
        self._take_weights()
        self._take_schemas()
        self._components: Tensor | None = None

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        # (N, K) of all processes; what follows in TRL keeps only sums of it.
        self._components = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        return self._components

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        with guarded_parsing(self._tokenizer):
            output = super()._generate_and_score_completions(inputs)
        contract.check_batch(output, len(inputs))
        mode = "train" if self.model.training else "eval"
        size = self.num_generations if mode == "train" else self.num_generations_eval
        assert self._components is not None
        rows = len(self._components)
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        options = dict(self.estimator_options)
        if "seed" in ESTIMATORS[self.estimator].options:
            options.setdefault("seed", (self.args.seed * 1_000_003 + self.state.global_step) % 2**31)
        result = estimate(
            self.estimator,
            self._components,
            torch.arange(rows) // size,
            self.reward_weights,
            lengths=self.accelerator.gather(mask.sum(1)),
            **options,
        )
        begin = self.accelerator.process_index * len(inputs)
        output["advantages"] = result.advantages[begin : begin + len(inputs)].to(output["advantages"])
        logged = self._logs["advantages"]
        for _ in range(min(rows, len(logged))):
            logged.pop()
        logged.extend(result.advantages.tolist())
        for name, value in flat_diagnostics(result.diagnostics, self.reward_func_names).items():
            self._metrics[mode][name].append(value)
        return output

    def _check_settings(self) -> None:
        """Refuse settings of TRL's advantages, which would silently have no effect."""
        for name, default in (("scale_rewards", "group"), ("multi_objective_aggregation", "sum_then_normalize")):
            if getattr(self, name) != default:
                raise UsageError(
                    f"{name}={getattr(self, name)!r} has no effect: advantages come from estimator {self.estimator!r}; "
                    "leave it out and choose the estimator"
                )

    def _check_end_tokens(self) -> None:
        """An end token that the task does not know would stay in answers, and make whole ones count as cut."""
        for function in self.reward_funcs:
            unknown = sorted(set(self.eos_token_ids) - getattr(function, "end_tokens", set(self.eos_token_ids)))
            if unknown:
                raise UsageError(
                    f"the model also ends its turns with token {', '.join(map(str, unknown))}: "
                    f"give trl_task stop_token_ids={unknown}"
                )

    def _take_weights(self) -> None:
        """Weights of an environment's components: the environment's, the one place where they live."""
        for index, function in enumerate(self.reward_funcs):
            if not isinstance(function, ComponentReward):
                continue
            given = None if self.args.reward_weights is None else self.args.reward_weights[index]
            if given is not None and given != function.weight:
                raise UsageError(
                    f"reward_weights gives {self.reward_func_names[index]!r} the weight {given:g}, its environment "
                    f"{function.weight:g}; set it at the environment: env_args={{'reward_weights': ...}}"
                )
            self.reward_weights[index] = function.weight

    def _take_schemas(self) -> None:
        """Show the model an environment's own schemas, in its order, rather than what TRL reads off its methods."""
        for name, factory in (self.environment_factories or {}).items():
            if hasattr(factory, "schemas"):
                self._env_tools[name] = [*self._standalone_tools, *factory.schemas]
