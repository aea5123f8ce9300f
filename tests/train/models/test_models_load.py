import json
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, GPT2Config, GPT2LMHeadModel, LlavaConfig

from corrgrpo_train.errors import UsageError
from corrgrpo_train.models import load, load_policy_model
from corrgrpo_train.models.__main__ import main
from corrgrpo_train.models.tiny import build_tiny


@pytest.fixture
def folder(tmp_path):
    model, tokenizer = build_tiny(3)
    model.save_pretrained(tmp_path / "policy")
    tokenizer.save_pretrained(tmp_path / "policy")
    return tmp_path / "policy"


def edit(path, **changes):
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def fails(name, *parts):
    """Loading gives one line that holds every part."""
    with pytest.raises(UsageError) as caught:
        load_policy_model(str(name))
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_tiny_by_name():
    policy = load_policy_model("tiny", seed=5)
    assert policy.source == "built in memory"
    assert policy.stop_token_ids == (2,)
    assert torch.equal(policy.model.get_input_embeddings().weight, build_tiny(5)[0].get_input_embeddings().weight)


def test_local_folder_gives_the_saved_weights_in_fp32(folder):
    policy = load_policy_model(str(folder))
    saved = load_file(folder / "model.safetensors")
    state = policy.model.state_dict()
    assert all(torch.equal(state[key], value) for key, value in saved.items())
    assert {value.dtype for value in policy.model.parameters()} == {torch.float32}
    assert policy.model.config._attn_implementation == "sdpa"
    assert not policy.model.training
    assert policy.source == str(folder)


def test_half_precision_weights_become_fp32(folder):
    weights = {key: value.bfloat16() for key, value in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    edit(folder / "config.json", dtype="bfloat16")
    policy = load_policy_model(str(folder))
    assert {value.dtype for value in policy.model.parameters()} == {torch.float32}


def test_missing_padding_token_becomes_the_end_token(folder):
    edit(folder / "tokenizer_config.json", pad_token=None)
    edit(folder / "config.json", pad_token_id=None)
    policy = load_policy_model(str(folder))
    assert policy.tokenizer.pad_token_id == policy.tokenizer.eos_token_id == policy.model.config.pad_token_id == 2


def test_generation_config_adds_stop_tokens(folder):
    edit(folder / "generation_config.json", eos_token_id=[0, 2])
    assert load_policy_model(str(folder)).stop_token_ids == (2, 0)


def test_missing_chat_template(folder):
    (folder / "chat_template.jinja").unlink()
    fails(folder, "no chat template", "instruction-tuned")


def test_missing_end_token(folder):
    edit(folder / "tokenizer_config.json", eos_token=None, pad_token=None)
    fails(folder, "no end token", "tokenizer_config.json")


def test_missing_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    fails(folder, "no tokenizer", "tokenizer.json")


def test_damaged_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model"')
    fails(folder, "tokenizer cannot be loaded")


def test_damaged_config(folder):
    (folder / "config.json").write_text("{")
    fails(folder, str(folder))


def test_unknown_architecture(folder):
    edit(folder / "config.json", model_type="llamma")
    fails(folder, "llamma")


def test_truncated_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    fails(folder, "cannot be loaded")


def test_absent_weights(folder):
    (folder / "model.safetensors").unlink()
    fails(folder, "cannot be loaded", "model.safetensors")


def test_incomplete_weights_are_refused_not_drawn_at_random(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    fails(folder, "lacks 1 weight tensor", "model.layers.1.mlp.up_proj.weight")


def test_weights_that_are_no_numbers(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    fails(folder, "nan or infinite", "model.layers.1.mlp.up_proj.weight")


def test_files_of_other_content(folder):
    (folder / "generation_config.json").write_text("[]")
    fails(folder, "cannot be loaded")
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", num_key_value_heads=0)
    fails(folder, "cannot be loaded")


def test_tokenizer_larger_than_the_embedding(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "id": 259, "content": "<|more|>"})
    (folder / "tokenizer.json").write_text(json.dumps(content))
    fails(folder, "260 tokens", "259 rows")


@pytest.mark.parametrize(
    "config",
    [
        BertConfig(architectures=["BertForMaskedLM"]),
        LlavaConfig(architectures=["LlavaForConditionalGeneration"]),
    ],
    ids=["encoder", "vision"],
)
def test_only_text_causal_models(folder, config):
    config.save_pretrained(folder)
    fails(folder, config.architectures[0], "only text-only causal language models")


def test_quantised_models_are_refused(folder):
    edit(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    fails(folder, "quantised")


def test_remote_code_is_never_run(folder):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    edit(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Config"})
    fails(folder, "cannot be loaded")


def test_another_architecture(folder):
    _, tokenizer = build_tiny()
    config = GPT2Config(vocab_size=259, n_embd=32, n_layer=1, n_head=2, eos_token_id=2, bos_token_id=1)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert isinstance(load_policy_model(str(folder)).model, GPT2LMHeadModel)


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/no-such-model-folder", "a/b/c"])
def test_folders_that_do_not_exist(name):
    fails(name, "does not exist", "`tiny`")


def test_things_that_are_not_model_folders(tmp_path):
    fails(tmp_path, "no config.json")
    (tmp_path / "weights.gguf").write_text("")
    fails(tmp_path / "weights.gguf", "is a file")


def test_impossible_hub_name():
    fails("what is this?", "not a valid name", "`default`")


def test_unreachable_hub_is_one_line_and_quick(monkeypatch):
    # port 9 of this machine refuses; no real network is touched
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    begin = time.monotonic()
    fails("nobody/nothing-7b", "hub cannot be reached", "`tiny` needs no download")
    assert time.monotonic() - begin < 60


def test_hub_snapshot_is_loaded_from_the_cache(folder, monkeypatch):
    monkeypatch.setattr(load, "snapshot_download", lambda name, **_: str(folder))
    assert load_policy_model("someone/something").source == str(folder)


@pytest.mark.parametrize("device", ["gpu", "meta:x", "cuda:99"])
def test_unusable_device(device):
    with pytest.raises(UsageError, match="cannot be used here"):
        load_policy_model("tiny", device=device)


def test_command_line(folder, capsys):
    assert main(["--model", str(folder)]) == 0
    assert "1.0 M parameters" in capsys.readouterr().out
    assert main(["--model", "./nowhere"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
