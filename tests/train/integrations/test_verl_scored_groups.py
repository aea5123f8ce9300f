"""Which groups dynamic sampling replaces under verl: those whose scored episodes do not differ."""

import math

import pytest

pytest.importorskip("verl", reason="verl is not installed: make test-verl")

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from corrgrpo_train.config import Config
from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.verl.compose import composed
from corrgrpo_train.integrations.verl.scored_groups import shared_value
from corrgrpo_train.integrations.verl.settings import verl_settings
from corrgrpo_train.integrations.verl.trainer import ComponentTrainer
from corrgrpo_train.rollout.dynamic_sampling import differs
from corrgrpo_train.rollout.episode import Episode

pytestmark = pytest.mark.verl

WEIGHTS = {"tests": 1.0, "style": 0.5, "speed": 0.0}
NAN = math.nan
FAILED = None


def row(values):
    """Extra fields of an episode, as the agent loop leaves them."""
    if values is FAILED:
        return {"reward_components": {}, "reward_weights": {}, "reward_extra_info": {"metrics/turns": NAN}}
    components = dict(zip(WEIGHTS, values, strict=True))
    logged = {f"components/{name}": value for name, value in components.items()} | {"metrics/turns": 3.0}
    return {"reward_components": components, "reward_weights": WEIGHTS, "reward_extra_info": logged}


def episode(values):
    one = Episode(0, 0, "task")
    if values is not FAILED:
        one.components, one.weights = dict(zip(WEIGHTS, values, strict=True)), WEIGHTS
        one.reward = sum(WEIGHTS[name] * value for name, value in one.components.items() if WEIGHTS[name])
    return one


@pytest.mark.parametrize(
    ("group", "metric", "shared"),
    [
        ([(1, 0, 0), (1, 1, 0)], "components/tests", 1.0),
        ([(1, 0, 0), (1, 1, 0)], "components/style", None),
        ([(1, 0, 0), (1, 1, 0)], "reward", None),
        ([(1, 0, 0), (0.5, 1, 0)], "reward", 1.0),
        # One that failed is no reward of 0, and one scored in part none of nan.
        ([(1, 0, 0), (1, 0, 0), FAILED], "components/tests", 1.0),
        ([(1, 0, 0), (1, 0, 0), FAILED], "reward", 1.0),
        ([(1, 0, 0), (1, 0, 0), (1, NAN, 0)], "reward", 1.0),
        ([(1, 0, 0), (0, 0, 0), FAILED], "components/tests", None),
        ([(1, NAN, 0), (0, NAN, 0)], "components/tests", NAN),
        ([FAILED, FAILED], "reward", NAN),
        ([], "reward", NAN),
        ([(1, 0, 0)], "reward", 1.0),
        # Without weight it may be unknown, and can be looked at all the same.
        ([(1, 0, NAN), (1, 0, 3)], "components/speed", 3.0),
        ([(1, 0, 2), (1, 0, 3)], "components/speed", None),
        # The same sum by other additions.
        ([(0.1 + 0.2, 0, 0), (0.3, 0, 0)], "reward", 0.3),
        ([(1, 0, 0), (1, 1, 0)], "metrics/turns", 3.0),
    ],
)
def test_a_group_is_replaced_if_its_scored_episodes_do_not_differ(group, metric, shared):
    found = shared_value([row(values) for values in group], metric)
    assert found == (shared if shared is None else pytest.approx(shared, nan_ok=True))
    if not metric.startswith("metrics/"):  # as in our own trainer
        assert (found is None) == differs([episode(values) for values in group], metric.removeprefix("components/"))


def test_a_metric_that_nobody_has_is_told():
    told = r"filter_groups\.metric 'components/test' is unknown.*Did you mean 'components/tests'"
    with pytest.raises(UsageError, match=told):
        shared_value([row(FAILED), row((1, 0, 0))], "components/test")


class OwnSampler(ReplayBuffer):
    """A user's."""


@pytest.mark.parametrize(
    ("overrides", "kind"),
    [
        ([], "ScoredGroups"),
        # Without our agent loop there are no components to look at.
        (["actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent"], "ReplayBuffer"),
        (
            [f"trainer.v1.sampler.custom_sampler.{key}" for key in (f"path={__file__}", "name=OwnSampler")],
            "OwnSampler",
        ),
    ],
)
def test_the_trainer_has_it_for_its_own_agent_loop(overrides, kind):
    settings = verl_settings(Config(env="RLLA-v0", model="folder", dynamic_sampling="format", groups_per_step=6))
    trainer = object.__new__(ComponentTrainer)
    trainer.config, trainer.trainer_mode = composed(settings, overrides), "sync"
    buffer = trainer._build_replay_buffer()
    assert type(buffer).__name__ == kind
    assert buffer.refill_fn == trainer._add_prompts_to_generate
    # verl leaves a sampler of the user's to find its own settings.
    found = (buffer.filter_groups_metric, buffer.train_batch_size, buffer.gen_batch_size)
    assert found == ((None, None, None) if kind == "OwnSampler" else ("components/format", 6, 1))
