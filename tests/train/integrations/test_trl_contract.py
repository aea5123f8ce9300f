"""What the integration takes for granted of TRL, checked on the one that is installed; the errors when it drifts."""

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl")

from packaging.requirements import Requirement
from trl import GRPOTrainer
from trl_models import grpo_config, tiny_policy

from corrgrpo_train.errors import UsageError
from corrgrpo_train.integrations.trl import MultiRewardGRPOTrainer, contract, trl_task

pytestmark = pytest.mark.trl


def test_the_extra_has_the_cap_that_the_integration_has():
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())
    (requirement,) = map(Requirement, project["project"]["optional-dependencies"]["trl"])
    assert requirement.name == "trl"
    assert requirement.specifier == contract.SUPPORTED


def test_another_version_is_refused_on_import():
    code = "import trl; trl.__version__ = '1.15.0'; import corrgrpo_train.integrations.trl"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode != 0
    assert "UsageError: TRL 1.15.0 is not supported" in ended.stderr


@pytest.mark.parametrize("version", ["1.15.3", "1.17.0", "2.0.0", "1.17.0.dev0"])
def test_other_versions_are_refused(version):
    with pytest.raises(UsageError, match=f"TRL {version} is not supported.*pip install"):
        contract.check_version(version)


def test_a_method_with_other_parameters_is_told():
    class Drifted:
        def _calculate_rewards(self, inputs, prompts, completions): ...

        def _generate_and_score_completions(self, inputs): ...

    with pytest.raises(UsageError, match="_calculate_rewards has changed"):
        contract.check_class(Drifted)
    with pytest.raises(UsageError, match="_calculate_rewards has changed: None"):
        contract.check_class(object)


def test_missing_attributes_and_other_shapes_are_told(tmp_path):
    model, tokenizer = tiny_policy()
    task = trl_task("RLLA-v0", tokenizer, limit=1)
    trainer = MultiRewardGRPOTrainer(
        model, task.reward_funcs, grpo_config(tmp_path), task.datasets["train"], processing_class=tokenizer
    )
    contract.check_trainer(trainer)
    del trainer.scale_rewards
    with pytest.raises(UsageError, match="no 'scale_rewards' any more"):
        contract.check_trainer(trainer)
    contract.check_batch({"advantages": torch.zeros(4)}, 4)
    for output in ({"advantages": torch.zeros(4, 7)}, {"advantages": torch.zeros(8)}, {}):
        with pytest.raises(UsageError, match="advantages have the shape"):
            contract.check_batch(output, 4)


def test_the_advantages_are_still_where_they_are_replaced():
    """The two seams in TRL's source: where rewards come from, and that the loss reads what is returned."""
    scoring = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert scoring.count("self._calculate_rewards(") == 1
    assert '"advantages": advantages' in scoring
    assert 'inputs["advantages"]' in inspect.getsource(GRPOTrainer._compute_loss)
    # Groups are contiguous rows of the gathered rewards.
    assert "view(-1, num_generations)" in scoring
