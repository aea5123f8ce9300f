"""Without TRL the integration says what to install."""

import importlib.util

import pytest


@pytest.mark.skipif(importlib.util.find_spec("trl") is not None, reason="TRL is installed here")
def test_the_missing_extra_is_named():
    with pytest.raises(ImportError, match=r"pip install 'corrgrpo\[train,trl\]'"):
        import corrgrpo_train.integrations.trl  # noqa: F401
