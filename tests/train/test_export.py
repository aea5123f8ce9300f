"""Exported policies: plain folders with the checkpoint's weights, the adapter added in."""

import json

import pytest
import torch
import transformers

from corrgrpo_train import export as exporting
from corrgrpo_train.checkpoint import save_checkpoint
from corrgrpo_train.models import build_tiny
from corrgrpo_train.models.lora import add_adapter
from corrgrpo_train.policy import Policy

IDS = torch.tensor([[5, 6, 7, 8, 9]])


def adapted(seed=3):
    """A tiny model whose adapter does something, and its tokenizer."""
    model, tokenizer = build_tiny(seed)
    adapter = add_adapter(model, base="tiny", rank=4, alpha=None, targets="all-linear", seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = 0.1 * torch.randn_like(parameter)
    return model, tokenizer, adapter


def save(run, step, model, tokenizer, *, best):
    return save_checkpoint(run, step, model=model, tokenizer=tokenizer, optimizer_state={}, state={}, best=best, keep=9)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    model, tokenizer, adapter = adapted()
    save(folder, 1, Policy(model, adapter=adapter), tokenizer, best=True)
    save(folder, 2, *build_tiny(5), best=False)
    return folder


@torch.no_grad()
def logits(folder, **options):
    # The library alone, as any other program would load it.
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options)(IDS).logits


def test_an_adapter_is_merged(run, tmp_path, capsys):
    out = tmp_path / "new" / "policy"
    assert exporting.main([str(run), str(out)]) == 0
    assert "step_000001" in capsys.readouterr().out
    assert not (out / "adapter_config.json").exists()
    with torch.no_grad():
        expected = adapted()[0](IDS).logits
    assert torch.allclose(logits(out), expected, atol=1e-5)
    assert transformers.AutoTokenizer.from_pretrained(out).chat_template
    assert [path.name for path in out.parent.iterdir()] == ["policy"]


@pytest.mark.parametrize("which", ["latest", "2"])
def test_which_and_dtype(run, tmp_path, which):
    out = tmp_path / "policy"
    assert exporting.main([str(run), str(out), "--which", which, "--dtype", "bfloat16"]) == 0
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert {weight.dtype for weight in loaded.parameters()} == {torch.bfloat16}
    for name, weight in build_tiny(5)[0].state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.bfloat16())


def test_one_checkpoint_by_its_folder(run, tmp_path):
    exporting.export(run / "checkpoints" / "step_000002", tmp_path / "policy")
    with torch.no_grad():
        assert torch.equal(logits(tmp_path / "policy"), build_tiny(5)[0](IDS).logits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--which", "3"], "'3'"),
        (["--dtype", "int8"], "'int8'"),
    ],
)
def test_wrong_input(run, tmp_path, capsys, change, message):
    assert exporting.main([str(run), str(tmp_path / "policy"), *change]) == 2
    error = capsys.readouterr().err
    assert error.startswith("corrgrpo_train.export: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_wrong_folders(run, tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    assert exporting.main([str(run), str(taken)]) == 2
    assert "left alone" in capsys.readouterr().err
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    assert exporting.main([str(tmp_path), str(tmp_path / "policy")]) == 2
    assert "neither a run" in capsys.readouterr().err
    unvalidated = tmp_path / "run"
    save(unvalidated, 1, *build_tiny(0), best=False)
    assert exporting.main([str(unvalidated), str(tmp_path / "policy")]) == 2
    assert "--which latest" in capsys.readouterr().err
    weights = unvalidated / "checkpoints/step_000001/policy/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert exporting.main([str(unvalidated), str(tmp_path / "policy"), "--which", "latest"]) == 2
    assert "damaged" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing(run, tmp_path, monkeypatch, capsys):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "flush", full)
    assert exporting.main([str(run), str(tmp_path / "policy")]) == 2
    assert "no space left" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_adapter_says_which_model_it_belongs_to(run):
    folder = run / "checkpoints/step_000001/policy"
    assert json.loads((folder / "base.json").read_text()) == {"model": "tiny", "seed": 3}
