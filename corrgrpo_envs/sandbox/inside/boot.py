"""Makes the modules of a sandbox worker importable from text, then starts it.

This file's text is the program of a fresh interpreter; standard input begins with one frame: JSON with `modules`
({name: source}), `main` (the module to run) and `options`.
"""

import builtins
import importlib
import importlib.machinery
import json
import os
import sys
from types import ModuleType
from typing import Any


class Sources:
    """Finds and loads modules in a table of source texts.

    It has no base class: those of `importlib.abc` bring a dozen modules with them, and with these the interpreter that
    is forked for every program grows.
    """

    def __init__(self, modules: dict[str, str]) -> None:
        self.modules = modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The module's specification if it is in the table."""
        if name not in self.modules:
            return None
        package = any(other.startswith(name + ".") for other in self.modules)
        return importlib.machinery.ModuleSpec(name, self, is_package=package)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """The usual module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's source in it.

        Built-in names are its own copy: a program that replaces them does not change what runs it.
        """
        module.__dict__["__builtins__"] = dict(vars(builtins))
        exec(compile(self.modules[module.__name__], f"<{module.__name__}>", "exec"), module.__dict__)


def _read(count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


def main() -> None:
    """Read the frame and start."""
    job = json.loads(_read(int.from_bytes(_read(4), "big")))
    sys.meta_path.append(Sources(job["modules"]))
    importlib.import_module(job["main"]).main(job["options"])


if __name__ == "__main__":
    main()
