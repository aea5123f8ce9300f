"""Scoring an answer against a ground truth: the published rewards, and named options.

Published: CorrGRPO's four rewards for RLLA-4K (arXiv 2609.36820), which divide ToolRL's correctness
(arXiv 2504.13958) into three.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from corrgrpo_envs.rewards import RewardComponent
from corrgrpo_envs.tools.blocks import CLOSE_CALL, OPEN_CALL, Layout, choose, first_block
from corrgrpo_envs.tools.calls import Call, CallError, as_call, call_name, parse_lines
from corrgrpo_envs.tools.matching import MATCHINGS, name_similarity
from corrgrpo_envs.tools.truth import GroundTruth

FORMAT = RewardComponent("format", 1.0, 0.0, 1.0, "1 if the answer has just the blocks of the ground truth")


@dataclass(frozen=True, slots=True)
class Score:
    """How well an answer agrees with its ground truth.

    Attributes:
        format: the answer has the blocks that it should have.
        status: one word: `"ok"`, `"invalid_format"`, `"no_call"`, `"unparsable_call"` or `"wrong_call"`.
        judged: the ground truth has calls, so that the three shares below mean something.
        function_name: similarity of the two lists of tool names, 0 to 1.
        parameter_names: mean similarity of the parameter names over the ground truth's calls, 0 to 1.
        parameter_values: share of the ground truth's parameters that have an equal value, 0 to 1.
        correctness: ToolRL's pooled share of names, parameter names and values, 0 to 1.
        calls: number of calls in the answer; 0 if they cannot be read.
    """

    format: bool
    status: str
    judged: bool
    function_name: float = 0.0
    parameter_names: float = 0.0
    parameter_values: float = 0.0
    correctness: float = 0.0
    calls: int = 0

    @property
    def all_exact(self) -> bool:
        """The calls agree wholly with the ground truth's, whatever the format (published: all-exact)."""
        return self.judged and self.function_name == self.parameter_names == self.parameter_values == 1.0

    @property
    def exact(self) -> bool:
        """Everything that is judged is right, format included."""
        return self.format and (self.all_exact or not self.judged)


@dataclass(frozen=True, slots=True)
class Rewards:
    """A way to turn scores into reward components.

    Attributes:
        components: the components, in order.
        values: their raw values for a score.
    """

    components: tuple[RewardComponent, ...]
    values: Callable[[Score], dict[str, float]]


def _corrgrpo_values(score: Score) -> dict[str, float]:
    return {
        "function_name": score.function_name - 0.5 if score.judged else 0.0,
        "parameter_names": 2 * score.parameter_names - 1 if score.judged else 0.0,
        "parameter_values": 3 * score.parameter_values - 1.5 if score.judged else 0.0,
        "format": float(score.format),
    }


def _toolrl_values(score: Score) -> dict[str, float]:
    return {
        "correctness": 6 * score.correctness - 3 if score.judged else 0.0,
        "format": float(score.format),
    }


CORRGRPO = Rewards(
    components=(
        RewardComponent("function_name", 1.0, -0.5, 0.5, "similarity of the names of the tools called"),
        RewardComponent("parameter_names", 1.0, -1.0, 1.0, "similarity of the parameter names of paired calls"),
        RewardComponent("parameter_values", 1.0, -1.5, 1.5, "share of parameters with an equal value"),
        FORMAT,
    ),
    values=_corrgrpo_values,
)
TOOLRL = Rewards(
    components=(
        RewardComponent("correctness", 1.0, -3.0, 3.0, "share of right names, parameter names and values"),
        FORMAT,
    ),
    values=_toolrl_values,
)
SCORINGS: Mapping[str, Rewards] = {"corrgrpo": CORRGRPO, "toolrl": TOOLRL}


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores answers; with its defaults by the published rules.

    Attributes:
        layout: the rules about blocks.
        matching: `"greedy"` (published) or `"optimal"` pairing of calls.
        surplus_penalty: how much a call beyond the ground truth's number weighs in the parameter scores, as a
            share of a needed call: with N needed and M > N made, they are multiplied by
            N / (N + surplus_penalty · (M - N)). 0 is published: surplus calls cost the name part only.

    Raises:
        ValueError: for an unknown matching or a negative penalty.
    """

    layout: Layout = field(default_factory=Layout)
    matching: str = "greedy"
    surplus_penalty: float = 0.0

    def __post_init__(self) -> None:
        choose("matching", self.matching, MATCHINGS)
        penalty = self.surplus_penalty
        if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not 0 <= penalty < float("inf"):
            raise ValueError(f"surplus_penalty must be a number from 0 upwards, not {penalty!r}")

    def score(self, text: str, truth: GroundTruth) -> Score:
        """Score an answer. Never raises on any text.

        Args:
            text: what the assistant wrote, without chat-template marks; white space around it is ignored.
            truth: the ground truth.
        """
        text = text.strip()
        well_formed = self.layout.holds(text, calls=truth.calls is not None, response=truth.response)
        if truth.calls is None:
            # No call is wanted: whatever is called changes nothing but the format.
            return Score(well_formed, "ok" if well_formed else "invalid_format", judged=False)
        block = first_block(text, OPEN_CALL, CLOSE_CALL, self.layout.answer_start(text))
        if block is None:
            return Score(well_formed, "no_call", judged=True)
        try:
            return self._compare(block, truth.calls, well_formed)
        except (CallError, RecursionError):
            return Score(well_formed, "unparsable_call", judged=True)

    def _compare(self, block: str, wanted: tuple[Call, ...], well_formed: bool) -> Score:
        values = parse_lines(block)
        names = [call_name(value) for value in values]
        known = {call.name for call in wanted}
        # Only calls of a wanted name need parameters; others are wrong whatever else they say.
        made = [
            as_call(value) if isinstance(name, str) and name in known else None
            for value, name in zip(values, names, strict=True)
        ]
        right = "ok" if well_formed else "invalid_format"
        if [call.token if call else None for call in made] == [call.token for call in wanted]:
            return Score(well_formed, right, True, 1.0, 1.0, 1.0, 1.0, len(made))
        name_share = name_similarity([call.name for call in wanted], names)
        pairs = MATCHINGS[self.matching](wanted, [call for call in made if call])
        alike, equal = sum(pair.names for pair in pairs), sum(pair.values for pair in pairs)
        parameters = sum(len(call.parameters) for call in wanted)
        surplus = max(0, len(made) - len(wanted))
        kept = len(wanted) / (len(wanted) + self.surplus_penalty * surplus)
        score = Score(
            well_formed,
            right,
            judged=True,
            function_name=name_share,
            parameter_names=kept * (alike / len(wanted)),
            parameter_values=kept * (equal / parameters if parameters else 1.0),
            correctness=kept * (name_share + alike + equal) / (1 + len(wanted) + parameters),
            calls=len(made),
        )
        return score if score.all_exact else replace(score, status="wrong_call")
