"""Our estimators in verl's registry, called by verl's own code."""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed: make test-verl")

from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, AdvantageEstimator, get_adv_estimator_fn
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from corrgrpo_train.advantages import ESTIMATORS, estimate, register
from corrgrpo_train.integrations.verl import registration  # noqa: F401  (registers)
from corrgrpo_train.integrations.verl.components import BatchComponents, carried_components
from corrgrpo_train.integrations.verl.estimators import register_estimators, registered
from corrgrpo_train.integrations.verl.names import VERL_ESTIMATORS
from corrgrpo_train.integrations.verl.trainer import batch_components

pytestmark = pytest.mark.verl

NAMES = ("format", "tests", "speed")
WEIGHTS = {"format": 0.05, "tests": 0.6, "speed": -0.3}


def batch_of(rows, weights=WEIGHTS, width=6, seed=0):
    """A verl batch of `rows`, (group label, components or None): sampled and given tokens mixed, as in multi-turn."""
    rng = np.random.default_rng(seed)
    mask = torch.zeros(len(rows), width, dtype=torch.int64)
    for row, (_, components) in enumerate(rows):
        if components is not None:
            mask[row, : rng.integers(2, width + 1)] = torch.from_numpy(rng.integers(0, 2, 1))
            mask[row, 0] = 1
    scores = torch.rand(len(rows), width)
    tensors = TensorDict({"response_mask": mask, "token_level_rewards": scores}, batch_size=len(rows))
    named = [{} if values is None else dict(zip(NAMES, values, strict=True)) for _, values in rows]
    others = {
        "uid": np.array([label for label, _ in rows], dtype=object),
        "reward_components": np.array(named, dtype=object),
        "reward_weights": np.array([dict(weights) if row else {} for row in named], dtype=object),
    }
    return DataProto(batch=tensors, non_tensor_batch=others)


def random_rows(seed=3):
    rng = np.random.default_rng(seed)
    rows = [(f"uid-{group}", rng.normal(size=3) * (1, 5, 0.2)) for group in range(6) for _ in range(2 + group)]
    rows[4] = (rows[4][0], (math.nan, 1.0, 2.0))  # could not be scored in part
    rows[9] = (rows[9][0], None)  # not at all
    return [rows[i] for i in rng.permutation(len(rows))]


def expected(rows, data, name, **options):
    labels = sorted({label for label, _ in rows})
    values = [[math.nan] * 3 if components is None else list(map(float, components)) for _, components in rows]
    return estimate(
        name,
        torch.tensor(values, dtype=torch.float64),
        torch.tensor([labels.index(label) for label, _ in rows]),
        torch.tensor(list(WEIGHTS.values()), dtype=torch.float64),
        lengths=data.batch["response_mask"].sum(-1),
        **options,
    ).advantages


def test_every_estimator_is_in_verl_s_registry_and_verl_s_own_stay():
    ours = {name: getattr(call, "estimator", None) for name, call in ADV_ESTIMATOR_REGISTRY.items()}
    ours = {theirs: name for theirs, name in ours.items() if name is not None}
    assert set(ours.values()) == set(ESTIMATORS)
    # docs/verl.md: ours by their names, but for those that verl has.
    renamed = {theirs: name for theirs, name in ours.items() if theirs != name}
    assert renamed == {"component_grpo": "grpo", "component_gdpo": "gdpo", "component_rloo": "rloo"}
    assert get_adv_estimator_fn("corrgrpo").estimator == "corrgrpo"
    for own in AdvantageEstimator:
        assert own.value not in ours
        assert get_adv_estimator_fn(own).__module__ == "verl.trainer.ppo.core_algos"


def test_all_names_of_verl_are_known():
    assert {own.value for own in AdvantageEstimator} == VERL_ESTIMATORS


@pytest.mark.parametrize("call", [compute_advantage, compute_advantage_for_multi_trajectories])
@pytest.mark.parametrize("theirs", sorted(registered()))
def test_verl_s_code_gives_our_advantages(theirs, call):
    ours, rows = registered()[theirs], random_rows()
    data = batch_of(rows)
    extra = {} if call is compute_advantage else {"batch_keys": [f"{label}_0_0" for label, _ in rows]}
    with BatchComponents.of_batch(data.non_tensor_batch).carried() as components:
        out = call(data, adv_estimator=theirs, config=None, **extra)
    wanted = expected(rows, data, ours)
    mask = out.batch["response_mask"]
    torch.testing.assert_close(out.batch["advantages"], wanted.unsqueeze(-1) * mask, rtol=0, atol=0)
    assert torch.equal(out.batch["returns"], out.batch["advantages"])
    assert wanted.abs().sum() > 0
    assert components.diagnostics["rows_left_out"] == 2
    assert carried_components() is None


def test_a_group_worked_by_hand_and_its_masks():
    # Uncorrelated components: Q = 2, the centred totals 1, 0, 0, -1 (README). Given tokens and padding get nothing.
    rows = [("a", (1.0, 1.0)), ("a", (1.0, 0.0)), ("a", (0.0, 1.0)), ("a", (0.0, 0.0))]
    mask = torch.tensor([[1, 1, 0, 1, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 0, 0]])
    named = [{"x": x, "y": y} for _, (x, y) in rows]
    components = BatchComponents.of_rows(named, [{"x": 1.0, "y": 1.0}] * 4)
    data = DataProto(
        batch=TensorDict({"response_mask": mask, "token_level_rewards": torch.zeros(4, 5)}, batch_size=4),
        non_tensor_batch={"uid": np.array(["a"] * 4, dtype=object)},
    )
    with components.carried():
        out = compute_advantage(data, adv_estimator="corrgrpo", config=None)
    a = 2**-0.5
    wanted = torch.tensor([[a, a, 0, a, 0], [0.0] * 5, [0.0] * 5, [-a, 0, -a, 0, 0]])
    torch.testing.assert_close(out.batch["advantages"], wanted, atol=1e-5, rtol=0)


def test_options_reach_the_estimator():
    rows = [("a", (1.0, 0.0, 0.0)), ("a", (0.0, 1.0, 0.0))] * 2  # opposed, weights unequal: Q = 0
    data = batch_of(rows, {"format": 1.0, "tests": 0.6, "speed": 0.0})
    found = {}
    for exact in (False, True):
        with BatchComponents.of_batch(data.non_tensor_batch, {"paper_exact": exact}).carried():
            found[exact] = compute_advantage(data, adv_estimator="corrgrpo", config=None).batch["advantages"].max()
    assert found[True] == pytest.approx(200.0, rel=1e-4)  # 0.2 / sqrt(1e-6)
    assert found[False] == pytest.approx(0.2 / (0.1 + 1e-6) ** 0.5, rel=1e-4)


def test_rows_that_fill_a_batch_up_do_not_count():
    rows = random_rows()
    fields = [
        {"reward_components": dict(zip(NAMES, values, strict=True)) if values is not None else {}} for _, values in rows
    ]
    fields = [{**row, "reward_weights": dict(WEIGHTS) if row["reward_components"] else {}} for row in fields]
    padded = batch_of([*rows, *[("pad", (9.0, 9.0, 9.0))] * 5])
    components = batch_components([*fields, *[fields[0]] * 5], [{}] * len(rows) + [{"is_padding": True}] * 5, {})
    real = BatchComponents.of_batch(batch_of(rows).non_tensor_batch)
    for theirs in registered():
        with components.carried():
            out = compute_advantage(padded, adv_estimator=theirs, config=None)
        told = dict(components.diagnostics)
        with real.carried():
            alone = compute_advantage(batch_of(rows), adv_estimator=theirs, config=None)
        found, wanted = out.batch["advantages"][:, 0], alone.batch["advantages"][:, 0]
        torch.testing.assert_close(found[:-5], wanted, rtol=0, atol=0)
        assert wanted.abs().sum() > 0
        assert not found[-5:].any()
        # They are no rows that could not be scored, and no group without a signal.
        assert told["rows_left_out"] == 2
        assert told.keys() == real.diagnostics.keys()
        for name, value in real.diagnostics.items():
            torch.testing.assert_close(torch.as_tensor(told[name]), torch.as_tensor(value), equal_nan=True, msg=name)


def test_nothing_scored_gives_zeros():
    data = batch_of([("a", None), ("a", None)])
    with BatchComponents.of_batch(data.non_tensor_batch).carried():
        out = compute_advantage(data, adv_estimator="corrgrpo", config=None)
    assert not out.batch["advantages"].any()


def test_without_components_the_trainer_to_use_is_told():
    with pytest.raises(ValueError, match=r"trainer\.v1\.trainer_mode=corrgrpo"):
        compute_advantage(batch_of(random_rows()), adv_estimator="corrgrpo", config=None)
    with pytest.raises(ValueError, match="no 'reward_components'"):
        BatchComponents.of_batch({"uid": []})
    with pytest.raises(ValueError, match="set the agent loop to 'corrgrpo'"):
        batch_components([{}], [{}], {})


def test_rows_must_agree():
    with pytest.raises(ValueError, match="components differ"):
        BatchComponents.of_rows([{"a": 1.0}, {"b": 1.0}], [{"a": 1.0}, {"b": 1.0}])
    with pytest.raises(ValueError, match="weights differ"):
        BatchComponents.of_rows([{"a": 1.0}, {"a": 1.0}], [{"a": 1.0}, {"a": 2.0}])
    three, two = BatchComponents.of_rows([{"a": 1.0}] * 3, [{"a": 1.0}] * 3), batch_of(random_rows()[:2])
    with three.carried(), pytest.raises(ValueError, match="3 rows, but 2 rows"):
        compute_advantage(two, adv_estimator="corrgrpo", config=None)


@pytest.mark.parametrize("name", ["by_first", "opo", "remax", "gpg", "gae"])
def test_an_estimator_of_ones_own_is_registered_too(name):
    @register(name)
    def by_first(batch):
        return batch.centred[:, 0]

    theirs = "by_first" if name == "by_first" else f"component_{name}"
    try:
        register_estimators()
        rows = random_rows()
        data = batch_of(rows)
        with BatchComponents.of_batch(data.non_tensor_batch).carried():
            out = compute_advantage(data, adv_estimator=theirs, config=None)
        assert torch.equal(
            out.batch["advantages"][:, 0], expected(rows, data, name) * data.batch["response_mask"][:, 0]
        )
    finally:
        del ESTIMATORS[name]
        ADV_ESTIMATOR_REGISTRY.pop(theirs, None)


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        ("component_grpo", "grpo", {}),
        ("component_rloo", "rloo", {}),
        ("component_gdpo", "gdpo", {"whitening": "tokens"}),
    ],
)
def test_where_both_have_an_estimator_they_agree(ours, theirs, options):
    rng = np.random.default_rng(5)
    rows = [(f"uid-{group}", rng.normal(size=3) * (1, 5, 0.2)) for group in range(5) for _ in range(4)]
    data = batch_of(rows)
    with BatchComponents.of_batch(data.non_tensor_batch, options).carried():
        found = compute_advantage(data, adv_estimator=ours, config=None).batch["advantages"]

    # verl's read the weighted sum at the last token, its gdpo the components by name.
    mask = data.batch["response_mask"]
    values = np.array([components for _, components in rows])
    data.batch["token_level_rewards"] = torch.zeros(mask.shape)
    data.batch["token_level_rewards"][:, -1] = torch.from_numpy(values @ np.array(list(WEIGHTS.values()))).float()
    data.batch["prompts"] = torch.zeros(len(rows), 3, dtype=torch.int64)
    data.batch["attention_mask"] = torch.ones(len(rows), 3 + mask.shape[1], dtype=torch.int64)
    for column, name in enumerate(NAMES):
        data.non_tensor_batch[name] = values[:, column]
    config = {"gdpo_reward_keys": list(NAMES), "gdpo_reward_weights": list(WEIGHTS.values())}
    wanted = compute_advantage(data, adv_estimator=AdvantageEstimator(theirs), config=config).batch["advantages"]
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-4)
    assert wanted.abs().max() > 0.1
