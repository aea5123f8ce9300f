"""What a command says of a package that is not installed."""

import pytest

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
