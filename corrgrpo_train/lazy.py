"""Packages whose names are imported when they are first used.

`python -m package` imports the package before its `__main__`. A package that imports what an extra brings could not
answer with one line where the extra is not installed.
"""

import importlib
from collections.abc import Callable
from typing import Any


def exports(package: str, **modules: str) -> Callable[[str], Any]:
    """A package's `__getattr__`.

    Args:
        package: the package's name.
        **modules: by module of the package, the names that it defines, separated by spaces.
    """
    places = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(places[name]), name)

    return find
