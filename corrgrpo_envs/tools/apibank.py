"""`corrgrpo/APIBank-v0`: make the one right call at a point of a dialogue; for evaluation."""

import os
from collections.abc import Iterable, Mapping

from corrgrpo_envs.env import MultiRewardEnv, Opening, Outcome
from corrgrpo_envs.errors import shown, unknown
from corrgrpo_envs.rewards import RewardComponent
from corrgrpo_envs.tasks import Task, TaskSet
from corrgrpo_envs.tools.apibank_matching import RULES, VALUES, Match, match, unnested
from corrgrpo_envs.tools.apibank_metrics import METRICS
from corrgrpo_envs.tools.apibank_rows import LEVELS, Item, items
from corrgrpo_envs.tools.blocks import Layout, choose
from corrgrpo_envs.tools.dialogues import answer_text
from corrgrpo_envs.tools.prompts import PROMPT_STYLES, read_template

FAULTY = ("keep", "drop")


class APIBankEnv(MultiRewardEnv):
    """API-Bank (arXiv 2304.08244), levels 1 to 3, by static matching with the stored call.

    The policy reads the tools and the dialogue so far and makes one call. Components: `correct`, weight 1, and,
    measured with weight 0, `function_name`, `parameter_names`, `parameter_values` (of the first call; 0 for a wrong
    tool) and `format` (a think block and a tool_call block, as RLLA asks for).

    Status: `ok`, `no_call`, `wrong_tool`, `wrong_parameters`, `several_calls` (the first one is right), `faulty_row`
    (wrong, but the row has a fault, see `apibank_rows.faulty_rows`).
    """

    components = (
        RewardComponent("correct", description="the call is right by the chosen rule"),
        RewardComponent("function_name", weight=0.0, description="the first call names the right tool"),
        RewardComponent("parameter_names", weight=0.0, description="similarity of its parameter names"),
        RewardComponent("parameter_values", weight=0.0, description="share of the stored values that it has"),
        RewardComponent("format", weight=0.0, description="a think block and a tool_call block, nothing else"),
    )
    metric_names = METRICS

    def __init__(
        self,
        *,
        split: str = "test",
        dataset: str = "builtin",
        reward_weights: Mapping[str, float] | None = None,
        render_mode: str | None = None,
        levels: Iterable[int] = LEVELS,
        matching: str = "single",
        values: str = "unnested",
        faulty: str = "keep",
        prompt_style: str = "published",
        prompt_template: str | os.PathLike[str] | None = None,
    ) -> None:
        """Make an environment; the defaults are the published static match.

        Args:
            split: `"test"` or `"all"`: every item is in `test`.
            dataset: `"builtin"`, a file or folder of published rows, or a hub id.
            reward_weights: weights that differ from the defaults, by component name.
            render_mode: None or `"ansi"`.
            levels: out of 1, 2 and 3.
            matching: `"single"`: the answer makes one call, and it equals the stored one; `"first"`: the first call
                counts; `"toolrl"`: any line of the last block, compared without any normal form.
            values: `"unnested"`: texts that spell lists or objects are taken for these; `"text"`: numbers for texts.
            faulty: `"keep"` or `"drop"` rows that have no right answer.
            prompt_style: `"published"` or `"compact"`; rows that carry a prompt keep it.
            prompt_template: path of a prompt with placeholders, for all rows, see `prompts.read_template`.

        Raises:
            ValueError: for a wrong option.
        """
        super().__init__(split=split, dataset=dataset, reward_weights=reward_weights, render_mode=render_mode)
        self._levels = _checked_levels(levels)
        choose("matching", matching, RULES)
        choose("values", values, VALUES)
        self._matching, self._values = matching, values
        if faulty not in FAULTY:
            raise unknown("faulty", faulty, FAULTY)
        self._drop = faulty == "drop"
        style = choose("prompt_style", prompt_style, PROMPT_STYLES)
        if prompt_template is not None and not isinstance(prompt_template, str | os.PathLike):
            raise ValueError(f"prompt_template must be a path or None, not {shown(prompt_template)}")
        self._template = None if prompt_template is None else read_template(os.fspath(prompt_template))
        self._prompt = self._template or style

    def load_tasks(self) -> TaskSet[Item]:
        """The items of the chosen levels."""
        kept = [
            task
            for task in items(self.dataset)
            if task.data.level in self._levels and not (self._drop and task.data.fault)
        ]
        if not kept:
            raise ValueError(f"levels={list(self._levels)} leave no item of data set {self.dataset!r}")
        return TaskSet(kept, self.split, self.dataset)

    def open(self, task: Task[Item]) -> Opening:
        """Pose the item. The prompt lists the tools, so the observation's `tools` is empty."""
        item = task.data
        if item.messages and self._template is None:
            return Opening(item.messages)
        if not item.tools:
            raise ValueError(
                f"prompt_template can't be used for task {task.id!r}: its prompt has no list of tools to read"
            )
        return Opening(self._prompt(item.tools, item.history))

    def answer(self, text: str) -> Outcome:
        """Score the answer."""
        item: Item = self.task.data
        found = {name: match(text, item.truth, rule, VALUES[self._values]) for name, rule in RULES.items()}
        chosen = found[self._matching]
        values = {
            "correct": float(chosen.correct),
            "function_name": chosen.name,
            "parameter_names": chosen.parameter_names,
            "parameter_values": chosen.parameter_values,
            "format": float(Layout().holds(text.strip(), calls=True, response=False)),
        }
        metrics = {f"correct_{name}": float(one.correct) for name, one in found.items()}
        metrics["correct_text"] = float(match(text, item.truth, RULES["single"], VALUES["text"]).correct)
        metrics |= {"level": float(item.level), "faulty": float(bool(item.fault)), "calls": float(chosen.calls)}
        return Outcome(values, status=_status(chosen, item), metrics=metrics)

    def reference(self) -> tuple[str, ...] | None:
        """The stored call; None for a faulty row, which has no right answer."""
        item: Item = self.task.data
        if item.fault:
            return None
        parameters = {key: unnested(value) for key, value in item.truth.parameters.items()}
        if self._matching == "toolrl":
            parameters = dict(item.truth.parameters)
        return (answer_text("One call does it.", [{"name": item.truth.name, "parameters": parameters}], None),)


def _status(found: Match, item: Item) -> str:
    if found.correct:
        return "ok"
    if item.fault:
        return "faulty_row"
    if not found.calls:
        return "no_call"
    if not found.name:
        return "wrong_tool"
    exact = found.parameter_names == found.parameter_values == 1.0
    return "several_calls" if exact and found.calls > 1 else "wrong_parameters"


def _checked_levels(levels: Iterable[int]) -> tuple[int, ...]:
    chosen = (levels,) if isinstance(levels, int) else tuple(levels) if isinstance(levels, Iterable) else (levels,)
    if not chosen:
        raise ValueError(f"levels must name at least one of {LEVELS}")
    for level in chosen:
        if isinstance(level, bool) or level not in LEVELS:
            raise unknown("levels", level, LEVELS)
    return tuple(int(level) for level in chosen)
