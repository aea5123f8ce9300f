"""The published study: a part of it is done again, and the page shows its numbers."""

import json
from pathlib import Path

import pytest
import torch

from corrgrpo_train.bandit_policy import train_bandit
from corrgrpo_train.benchmark.study.bandit import Trial, best_reward, gained, results, tuned
from corrgrpo_train.benchmark.study.pages import renewed
from corrgrpo_train.benchmark.study.settings import LEARNING_RATES, PANELS, SEEDS, TUNING_SEEDS, Panel

pytest.importorskip("scipy")
torch.set_num_threads(1)

DOCS = Path(__file__).resolve().parents[3] / "docs"
PUBLISHED = json.loads((DOCS / "study" / "bandit.json").read_text())


def published(panel: Panel):
    return next(
        one
        for one in PUBLISHED["panels"]
        if (one["condition"], one["optimizer"], one["kl"]) == (panel.condition.name, panel.optimizer, panel.kl)
    )


@pytest.mark.parametrize(("place", "method"), [(0, "corrgrpo"), (0, "grpo"), (6, "corrgrpo"), (6, "matched")])
def test_a_part_done_again_is_within_the_published_intervals(place, method, tmp_path):
    panel = PANELS[place]
    before = published(panel)
    rate = before["rates"]["corrgrpo" if method == "matched" else method]
    trial = Trial(panel, method, rate, SEEDS)
    run = results([trial], tmp_path, 1, False, "again")[trial]
    for measure in ("area", "final"):
        interval = before["own"]["values"][method][measure]
        assert interval["count"] == len(SEEDS)
        assert interval["low"] <= gained(panel, run, measure).mean() <= interval["high"]


def test_a_published_difference_is_found_again_with_other_seeds(tmp_path):
    """MO-GRPO at GRPO's step size in the base condition: the interval of fresh seeds meets the published one."""
    panel = PANELS[0]
    before = published(panel)
    seeds = tuple(range(5000, 5016))
    rate = before["rates"]["grpo"]
    trials = [Trial(panel, method, rate, seeds) for method in ("corrgrpo", "mo_grpo")]
    runs = results(trials, tmp_path, 1, False, "again")
    first, second = (gained(panel, runs[trial], "area") for trial in trials)
    apart = first - second
    half = 3 * apart.std(ddof=1) / len(seeds) ** 0.5
    interval = before["same"]["differences"]["mo_grpo"]["area"]
    assert interval["low"] - half <= apart.mean() <= interval["high"] + half


def test_the_gain_is_measured_on_the_right_scale():
    """0 for the uniform policy; 100 for one that has the best arm everywhere."""
    panel = PANELS[0]
    arguments = Trial(panel, "dr_grpo", 64.0, (0,)).cell.arguments
    run = train_bandit(**{**arguments, "steps": 2500, "groups_per_step": 64})
    share = (run.reward - run.reward[:, :1]) / (best_reward(panel) - run.reward[:, :1])
    assert 0.97 < share[0, -1] <= 1.0


def test_tuning_takes_the_rate_of_the_largest_area(tmp_path):
    panel = Panel(PANELS[0].condition, "adamw")
    chosen = tuned({(panel, "grpo"): ()}, tmp_path, 1, False)[panel, "grpo"]
    areas = {
        rate: train_bandit(**Trial(panel, "grpo", rate, TUNING_SEEDS).cell.arguments)
        for rate in LEARNING_RATES["adamw"]
    }
    # All measurements are equally far apart: the area is the mean with the ends at half weight.
    heights = {rate: run.reward[:, 1:-1].sum(1) + run.reward[:, -1] / 2 for rate, run in areas.items()}
    assert chosen == max(heights, key=lambda rate: heights[rate].mean().item())
    assert chosen == published(panel)["rates"]["grpo"]


def test_the_page_shows_the_published_numbers():
    page = DOCS / "study.md"
    assert renewed(page) == page.read_text(encoding="utf-8")
