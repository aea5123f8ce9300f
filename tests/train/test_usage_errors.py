"""What a command says of a package that is not installed."""

import subprocess
import sys

import pytest

import corrgrpo_train.evaluate
import corrgrpo_train.models
from corrgrpo_train.errors import needs_extra


def test_a_missing_package_is_one_line_that_names_the_extra(capsys):
    with pytest.raises(SystemExit) as end, needs_extra("train"):
        import not_there.at_all  # noqa: F401
    assert end.value.code == 2
    assert (
        capsys.readouterr().err
        == "error: this needs not_there, which is not installed: pip install 'corrgrpo[train]'\n"
    )


def test_a_fault_of_our_own_is_not_hidden():
    with pytest.raises(ModuleNotFoundError), needs_extra("train"):
        import corrgrpo_train.not_there  # noqa: F401


@pytest.mark.parametrize(
    "module",
    [
        "corrgrpo_train",
        "corrgrpo_train.models",
        "corrgrpo_train.evaluate",
        "corrgrpo_train.report",
        "corrgrpo_train.benchmark",
        "corrgrpo_train.benchmark.study",
    ],
)
def test_a_command_says_which_extra_it_needs(module):
    absent = ("torch", "rich", "transformers", "matplotlib", "yaml")
    script = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({absent!r})); runpy.run_module({module!r}, "
        "run_name='__main__', alter_sys=True)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert "which is not installed: pip install 'corrgrpo[train]'" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("package", [corrgrpo_train.evaluate, corrgrpo_train.models])
def test_every_name_of_a_package_is_found(package):
    for name in package.__all__:
        assert getattr(package, name).__name__ == name if name != "DEFAULT_MODEL" else package.DEFAULT_MODEL
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018
