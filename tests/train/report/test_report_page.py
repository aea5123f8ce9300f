"""The page as a file: nothing from outside, nothing escapes, nothing asked of a network."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from corrgrpo_train.errors import UsageError
from corrgrpo_train.report.page import Chart, Page, Section, Table, View, embedded_json, render_page, write_page

EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(2)">{{ 7 * 7 }}&amp;'


class Elements(HTMLParser):
    """All start tags with their attributes, and the texts of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def a_page(text: str = "plain") -> Page:
    figure = {"data": [{"type": "scatter", "x": [1, 2], "y": [float("nan"), 1.5], "name": text}], "layout": {}}
    table = Table(columns=[text, "b"], rows=[[text, 1.23456], [None, 2]], caption=text)
    section = Section(title=text, text=[text], tables=[table], charts=[Chart(title=text, unit=text, figure=figure)])
    view = View(name="runs", title=text, legend=[(text, "#123456")])
    return Page(title=text, sections=[section], notes=[text], views=[view])


def test_hostile_text_adds_no_element() -> None:
    plain, evil = Elements(render_page(a_page())), Elements(render_page(a_page(EVIL)))
    assert [tag for tag, _ in evil.found] == [tag for tag, _ in plain.found]
    (data,) = [json.loads(s) for s, (_, a) in zip(evil.scripts, tags(evil, "script"), strict=True) if "type" in a]
    assert data["title"] == EVIL
    assert data["charts"]["chart-0-0"]["data"][0] == {"type": "scatter", "x": [1, 2], "y": [None, 1.5], "name": EVIL}


def tags(elements: Elements, tag: str) -> list[tuple[str, dict[str, str | None]]]:
    return [(name, attributes) for name, attributes in elements.found if name == tag]


def test_the_policy_names_the_scripts_and_nothing_else() -> None:
    elements = Elements(render_page(a_page()))
    (policy,) = [a["content"] for _, a in tags(elements, "meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    scripts = [s for s, (_, a) in zip(elements.scripts, tags(elements, "script"), strict=True) if "type" not in a]
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert rules["script-src"].split() == [f"'sha256-{value}'" for value in hashes]
    assert "unsafe" not in rules["script-src"]


def test_nothing_is_fetched() -> None:
    elements = Elements(render_page(a_page()))
    assert not [tag for tag, _ in elements.found if tag in {"link", "img", "iframe", "object", "base"}]
    outside = [a for _, a in elements.found if a.get("src") or (a.get("href") or "#")[0] != "#"]
    assert outside == []


def test_json_in_a_script_element_is_still_json() -> None:
    data = {"a": "</script><!-- & ' \" \u2028 \ud800", "b": [float("inf"), 1]}
    text = embedded_json(data)
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == {"a": data["a"], "b": [None, 1]}


def test_cells() -> None:
    text = render_page(a_page())
    assert "<bdi>1.235</bdi>" in text
    assert "<bdi>–</bdi>" in text
    assert "<bdi>2</bdi>" in text


def test_a_page_without_charts_has_no_chart_library() -> None:
    page = Page(title="Only words", sections=[Section(title="A", text=["b"])])
    assert len(render_page(page)) < 50_000 < len(render_page(a_page()))


def test_a_plotly_figure_can_be_given() -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    figure: Any = graph_objects.Figure(graph_objects.Bar(x=["a", "b"], y=[3, 1]), {"barmode": "group"})
    chart = Chart(title="Bars", figure=figure.to_plotly_json())
    text = render_page(Page(title="t", sections=[Section(title="s", charts=[chart])]))
    assert '"type":"bar"' in text
    assert '"barmode":"group"' in text


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_page(tmp_path / "no" / "page.html", a_page())
    path = write_page(tmp_path / "page.html", a_page("\ud800 lone"))
    assert "⟨U+D800⟩ lone" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]
