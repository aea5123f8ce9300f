"""Modes and settings that follow from others."""

from pathlib import Path

import pytest

from corrgrpo_train import cli
from corrgrpo_train.bundles import BELONGS, IMPLIED, MODES, merge
from corrgrpo_train.config import Config, field_types, read_settings, to_yaml
from corrgrpo_train.config_checks import check_algorithm, check_values
from corrgrpo_train.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def made(*arguments: str) -> Config:
    """The configuration of a command line; `auto` devices would look for a profile."""
    return cli.gather(cli.parse(["--env", "CorrelatedBandit-v0", *arguments]))[0]


def test_bundles_name_settings_that_exist() -> None:
    types = field_types()
    names = {name for bundle in MODES.values() for name in bundle} | set(BELONGS) | set(IMPLIED)
    names |= {name for owned in BELONGS.values() for name in owned}
    assert names <= set(types)


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_sets_all_that_belongs_to_it_from_anywhere(mode: str) -> None:
    for config in (made("--mode", mode), Config(env="CorrelatedBandit-v0", mode=mode)):
        for name, value in MODES[mode].items():
            assert getattr(config, name) == value, name
        check_values(config)
        check_algorithm(config)
        # What is written says the same when it is read.
        assert Config(**read_settings(to_yaml(config), "text")) == config


def test_the_papers_settings() -> None:
    dapo = made("--mode", "dapo")
    assert (dapo.method, dapo.objective, dapo.clip_low, dapo.clip_high) == ("grpo", "dapo", 0.2, 0.28)
    assert (dapo.aggregation, dapo.dynamic_sampling, dapo.overlong_share) == ("token", "reward", 0.2)
    cispo = made("--mode", "cispo")
    assert (cispo.method, cispo.objective, cispo.aggregation, cispo.cispo_max_ratio) == ("grpo", "cispo", "token", 5.0)
    gdpo = made("--mode", "gdpo")
    assert (gdpo.method, gdpo.objective, gdpo.aggregation, gdpo.kl_coefficient) == ("gdpo", "grpo", "sequence", 0.0)
    dr_grpo = made("--mode", "dr_grpo", "--max-new-tokens", "77")
    assert (dr_grpo.method, dr_grpo.aggregation, dr_grpo.aggregation_length) == ("dr_grpo", "constant", 77)


def test_what_is_given_beside_a_mode_wins() -> None:
    config = made("--mode", "dapo", "--clip-high", "0.2", "--method", "corrgrpo", "--dynamic-sampling", "arm")
    assert (config.clip_high, config.method, config.dynamic_sampling) == (0.2, "corrgrpo", "arm")
    assert config.run_dir == Path("runs/CorrelatedBandit-v0-dapo-corrgrpo-s0")
    config = Config(env="x", mode="dapo", clip_high=0.2)
    assert (config.clip_high, config.clip_low, config.aggregation) == (0.2, 0.2, "token")
    assert made("--mode", "dapo", "--objective", "cispo").clip_high == 0.2  # dapo's bounds go with its objective
    assert made("--mode", "dapo", "--dynamic-sampling", "null").dynamic_sampling is None
    assert made("--mode", "dr_grpo", "--aggregation", "token").aggregation_length is None


def test_a_later_layers_mode_replaces_the_former_one() -> None:
    merged = merge([{"mode": "dapo", "steps": 3}, {"mode": "cispo"}])
    assert merged == {"mode": "cispo", "steps": 3, **MODES["cispo"]}
    merged = merge([{"mode": "dapo", "clip_high": 0.3}, {"steps": 4}])
    assert (merged["clip_high"], merged["aggregation"]) == (0.3, "token")
    merged = merge([{"objective": "grpo", "clip_low": 0.1}, {"mode": "cispo"}])
    assert "clip_low" not in merged


def test_objective_dapo_clips_higher_by_itself() -> None:
    assert made("--objective", "dapo").clip_high == 0.28
    assert made("--objective", "dapo", "--clip-high", "0.3").clip_high == 0.3
    assert made("--objective", "grpo").clip_high == 0.2
    assert Config(env="x", objective="dapo").clip_high == 0.28


def test_engine_vllm_corrects_for_its_own_probabilities_by_itself() -> None:
    assert Config(env="x").importance_correction == "none"
    assert Config(env="x", engine="vllm").importance_correction == "truncate"
    assert Config(env="x", engine="vllm", mode="dapo").importance_correction == "truncate"
    for given in ("none", "mask"):
        assert Config(env="x", engine="vllm", importance_correction=given).importance_correction == given
    # What a lower layer said for another engine goes with that; what it said for this one stays.
    merged = merge([{"engine": "transformers", "importance_correction": "none"}, {"engine": "vllm"}])
    assert Config(env="x", **merged).importance_correction == "truncate"
    merged = merge([{"engine": "vllm", "importance_correction": "mask", "importance_cap": 3.0}, {"engine": "vllm"}])
    assert (merged["importance_correction"], merged["importance_cap"]) == ("mask", 3.0)
    # What is written says the same when it is read.
    config = Config(env="x", engine="vllm", importance_correction="none")
    assert Config(**read_settings(to_yaml(config), "text")) == config


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"mode": "dappo"},
            "mode 'dappo' is unknown; allowed: 'dapo', 'cispo', 'gdpo', 'dr_grpo'. Did you mean 'dapo'",
        ),
        ({"objective": "cisp"}, "Did you mean 'cispo'?"),
        ({"importance_correction": "truncated"}, "Did you mean 'truncate'?"),
        ({"cispo_max_ratio": 4.0}, "cispo_max_ratio has no effect with objective 'grpo': it belongs to 'cispo'"),
        (
            {"objective": "cispo", "clip_low": 0.1},
            "clip_low has no effect with objective 'cispo': it belongs to 'grpo'",
        ),
        ({"mode": "cispo", "clip_high": 0.3}, "clip_high has no effect with objective 'cispo'"),
        ({"importance_cap": 3.0}, "importance_cap has no effect without importance_correction"),
        ({"dynamic_sampling_attempts": 3}, "dynamic_sampling_attempts has no effect without dynamic_sampling"),
        ({"overlong_length": 30}, "overlong_length has no effect without overlong_share"),
        ({"aggregation_length": 30}, "aggregation_length has no effect without aggregation 'constant'"),
        ({"dynamic_sampling": "reward", "group_size": 1}, "dynamic_sampling needs a group_size of at least 2"),
        ({"overlong_share": 1.5}, "overlong_share must be at most 1"),
        ({"cispo_max_ratio": 0.5, "objective": "cispo"}, "cispo_max_ratio must be at least 1"),
        ({"kl_coefficient": -1}, "kl_coefficient must be at least 0"),
    ],
)
def test_settings_that_can_not_work_or_do_nothing_are_told(settings: dict[str, object], words: str) -> None:
    config = Config(env="CorrelatedBandit-v0", **settings)  # type: ignore[arg-type]

    def check() -> None:
        check_values(config)
        check_algorithm(config)

    with pytest.raises(UsageError) as error:
        check()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_penaltys_weight_does_not_reach_the_environment() -> None:
    config = Config(env="x", overlong_share=0.5, reward_weights={"overlong": 0.5})
    assert config.env_arguments == {}
    config = Config(env="x", overlong_share=0.5, reward_weights={"overlong": 0.5, "a": 2})
    assert config.env_arguments == {"reward_weights": {"a": 2.0}}
    assert Config(env="x", reward_weights={"overlong": 0.5}).env_arguments == {"reward_weights": {"overlong": 0.5}}


def test_the_table_in_the_documentation_is_what_the_modes_set() -> None:
    page = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8").partition("## Modes")[2].partition("## ")[0]
    header, _, *rows = [
        [cell.strip().strip("`") for cell in row.split("|")[1:-1]] for row in page.splitlines() if row[:1] == "|"
    ]
    assert header[1:] == list(MODES)
    for place, mode in enumerate(MODES, start=1):
        listed = {row[0]: row[place] for row in rows if row[place] and row[0] != "aggregation_length"}
        assert listed == {name: str(value) for name, value in MODES[mode].items()}
    (length,) = [row for row in rows if row[0] == "aggregation_length"]
    assert [mode for mode, cell in zip(MODES, length[1:], strict=True) if cell] == ["dr_grpo"]
