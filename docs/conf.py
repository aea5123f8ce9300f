"""Settings of the documentation site: `make docs` builds it from the pages in this folder and from docstrings."""

import re
from importlib.metadata import version as installed_version
from typing import Any

project = "corrgrpo"
release = installed_version("corrgrpo")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "corrgrpo"
html_show_copyright = False

# The pages are read on code hosts too, where every heading is a link target.
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False
napoleon_use_ivar = True


_CODE = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)")


def restructured(lines: list[str]) -> list[str]:
    """A docstring's Markdown (code in backticks, fenced and indented blocks, bars and stars) in Sphinx's own markup."""
    out: list[str] = []
    fenced, margin, last = False, -1, ""
    for line, before in zip(lines, ["", *lines], strict=False):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if margin >= 0 and text and indent <= margin:
            margin = -1
        outer = len(last) - len(last.lstrip())
        if margin < 0 and last and text and not before.strip() and indent > outer:
            margin = outer
            out += [f"{' ' * margin}.. code-block::", ""]
        if text.startswith("```"):
            fenced = not fenced
            out += ["", f".. code-block:: {text[3:]}", ""] if fenced else [""]
        elif fenced:
            out.append(f"    {line}")
        elif text.startswith((">>>", "...")) or margin >= 0:
            out.append(line)
        else:
            parts = _CODE.split(line)  # every second one is code
            out.append("".join(f"``{part}``" if at % 2 else _escaped(part) for at, part in enumerate(parts)))
        last = line if text else last
    return out


def _escaped(prose: str) -> str:
    return re.sub(r"(?<!`)([|*])(?!`)", r"\\\1", prose)


def setup(app: Any) -> None:
    """Sphinx's hook: docstrings are translated before napoleon reads their sections."""

    def translate(app: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
        lines[:] = restructured(lines)
        if what in ("property", "attribute"):
            lines.insert(0, "")  # else napoleon takes what stands before a colon for a type

    app.connect("autodoc-process-docstring", translate, priority=100)
