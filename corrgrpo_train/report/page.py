"""`write_page`: titled sections of tables and charts as one HTML file that needs nothing else.

The file holds its own style sheet, scripts and data and opens without a network; a content security policy in it
forbids everything that is not in it. Text reaches the page escaped or as text nodes, never as markup.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from corrgrpo_train.errors import UsageError
from corrgrpo_train.report.text import visible
from corrgrpo_train.tracking import plain, replace_file

Cell = str | float | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        columns: titles.
        rows: cells by row; numbers are shown with four significant digits, None as a dash.
        caption: stands above it.
        folded: whether the reader has to open it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A Plotly chart.

    Attributes:
        title: what it shows.
        figure: `data` (traces) and `layout`, as plain dicts or a figure's `to_plotly_json()`. Colours of text, grid
            and background come from the page. Texts that Plotly draws take a little markup: pass names from outside
            through `corrgrpo_train.report.text.plot_text`. Of a trace's `meta` the page reads
            `label` (the legend entry it belongs to), `view` and `layer`; of `layout.meta`
            `pareto`, two of +1 (more is better) and -1: points that are worse on both axes are greyed.
        unit: of the vertical axis.
        note: a sentence below it.
        choice: charts of a section with a choice are shown one choice at a time, picked from a list.
        wide: takes the whole width.
    """

    title: str
    figure: Mapping[str, Any]
    unit: str = ""
    note: str = ""
    choice: str = ""
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page, with an entry in its table of contents.

    Attributes:
        title: heading; no two sections of a page have the same.
        text: paragraphs.
        tables: below the text.
        charts: below the tables.
        choice: what is picked where charts have choices: "pair of components".
    """

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    choice: str = ""


@dataclass(frozen=True, kw_only=True)
class View:
    """One way to draw the traces: those with its name in `meta.view` (and those with none) are shown.

    Attributes:
        name: for `meta.view`.
        title: on its switch, shown where the page has several views.
        legend: labels and CSS colours; a click hides or shows the traces with this `meta.label` in all charts.
    """

    name: str
    title: str
    legend: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Traces that the reader can switch on and off in all charts: those with its name in `meta.layer`."""

    name: str
    title: str
    shown: bool = True


@dataclass(frozen=True, kw_only=True)
class Page:
    """What `write_page` writes.

    Attributes:
        title: heading and title of the document.
        sections: in order.
        notes: what the reader should know first.
        views: the first is shown first; one is enough for a legend.
        layers: switches.
        transcripts: data of the transcript browser (`corrgrpo_train.report.transcripts`); None leaves it out.
    """

    title: str
    sections: Sequence[Section]
    notes: Sequence[str] = ()
    views: Sequence[View] = ()
    layers: Sequence[Layer] = ()
    transcripts: Mapping[str, Any] | None = field(default=None, repr=False)


def write_page(path: Path, page: Page) -> Path:
    """Write the page, aside and renamed.

    Raises:
        UsageError: if a package is missing or the file cannot be written.
    """
    content = render_page(page).encode("utf-8", errors="xmlcharrefreplace")
    try:
        replace_file(path, content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return path


def render_page(page: Page) -> str:
    """The page as HTML.

    Raises:
        UsageError: if jinja2 or plotly is missing.
    """
    try:
        import jinja2

        plotly = (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    except (ImportError, OSError):
        raise UsageError("the HTML report needs jinja2 and plotly: pip install 'corrgrpo[train]'") from None
    assets = resources.files("corrgrpo_train.report") / "assets"
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"cell": _cell, "visible": visible}
    charts = {
        f"chart-{section_number}-{number}": chart
        for section_number, section in enumerate(page.sections)
        for number, chart in enumerate(section.charts)
    }
    parts = [name for name in ("page.js", "transcripts.js") if name == "page.js" or page.transcripts is not None]
    scripts = [(assets / name).read_text(encoding="utf-8") for name in parts]
    if charts:
        scripts.insert(0, plotly)
    data = {
        "title": visible(page.title),
        "charts": {name: _chart_data(chart) for name, chart in charts.items()},
        "views": [{"name": view.name, "title": view.title, "legend": view.legend} for view in page.views],
        "layers": [{"name": layer.name, "title": layer.title, "shown": layer.shown} for layer in page.layers],
        "transcripts": page.transcripts,
    }
    template = environment.from_string((assets / "page.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        page=page,
        style=(assets / "page.css").read_text(encoding="utf-8"),
        scripts=scripts,
        policy=_policy(scripts),
        data=embedded_json(data),
    )


def embedded_json(data: Any) -> str:
    """The data as JSON that cannot end the script element in which it stands; nan and infinities become null."""
    text = json.dumps(plain(data), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: Sequence[str]) -> str:
    """The content security policy: these scripts, inline styles (Plotly sets them), pictures made on the page."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def _chart_data(chart: Chart) -> dict[str, Any]:
    return {
        "title": visible(chart.title),
        "unit": visible(chart.unit),
        "data": chart.figure.get("data", []),
        "layout": chart.figure.get("layout", {}),
    }


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    return visible(value) if isinstance(value, str) else f"{value:.4g}"
