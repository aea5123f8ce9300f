"""The report in a headless Chromium: what a reader clicks, what a hostile model wrote, what a phone shows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web_runs import CALL, HOSTILE

pytestmark = pytest.mark.web
Opened = Callable[..., Any]


def traces(page: Any, title: str) -> list[dict[str, Any]]:
    """What Plotly has drawn in the chart of this title, scrolled to first."""
    chart = page.locator(".chart", has=page.get_by_text(title, exact=True)).first
    chart.scroll_into_view_if_needed()
    chart.locator(".plot .main-svg").first.wait_for()
    script = (
        "plot => plot.data.map(t => ({name: t.name, x: t.x, y: t.y, meta: t.meta, marker: t.marker, fill: t.fill}))"
    )
    drawn: list[dict[str, Any]] = chart.locator(".plot").evaluate(script)
    return drawn


def labels(page: Any, title: str) -> set[str]:
    return {trace["meta"]["label"] for trace in traces(page, title)}


def found(page: Any) -> str:
    text: str = page.locator("#browser [role=status]").inner_text()
    return text


# ---- charts ----


def test_charts_draw_what_the_rows_hold(several: Path, opened: Opened) -> None:
    page = opened(several)
    drawn = traces(page, "Total reward")
    raw = [t for t in drawn if t["meta"]["layer"] == "raw"]
    assert {t["meta"]["label"] for t in raw} == {"corrgrpo-0", "corrgrpo-1", "grpo-0", "grpo-1"}
    assert all(t["x"] == list(range(1, 21)) for t in raw)
    assert page.locator(".chart .main-svg").count() > 0


def test_the_legend_hides_and_shows_a_run_everywhere(several: Path, opened: Opened) -> None:
    page = opened(several)
    button = page.get_by_role("button", name="grpo-1", exact=True)
    assert "grpo-1" in labels(page, "Total reward")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert "grpo-1" not in labels(page, "Total reward")
    assert "grpo-1" not in labels(page, "Policy entropy")  # drawn after the click
    button.focus()
    page.keyboard.press("Space")
    assert "grpo-1" in labels(page, "Total reward")


def test_layers_and_the_view_over_seeds(several: Path, opened: Opened) -> None:
    page = opened(several)
    page.get_by_label("Raw values").uncheck()
    assert "raw" not in {t["meta"].get("layer") for t in traces(page, "Total reward")}
    runs = {t["meta"]["label"]: t["y"] for t in traces(page, "Total reward") if t["meta"]["layer"] == "smooth"}
    page.get_by_label("mean and range over seeds").check()
    drawn = [t for t in traces(page, "Total reward") if t["meta"]["layer"] == "smooth"]
    assert [t["meta"]["label"] for t in drawn] == ["corrgrpo", "corrgrpo", "grpo", "grpo"]
    (mean,) = [t for t in drawn if t["meta"]["label"] == "grpo" and not t["fill"]]
    expected = [(a + b) / 2 for a, b in zip(runs["grpo-0"], runs["grpo-1"], strict=True)]
    assert mean["y"] == pytest.approx(expected, rel=1e-3)
    assert page.locator(".legend button").all_inner_texts() == ["corrgrpo", "grpo"]


def test_dominated_points_are_grey_and_follow_the_legend(several: Path, opened: Opened) -> None:
    page = opened(several)

    def grey() -> None:
        drawn = [t for t in traces(page, "run and pass") if "label" in (t["meta"] or {})]
        points = [(x, y, c) for t in drawn for x, y, c in zip(t["x"], t["y"], t["marker"]["color"], strict=True)]
        for x, y, colour in points:
            beaten = any(a >= x and b >= y and (a, b) != (x, y) for a, b, _ in points)
            assert (colour == "#8a8f96") == beaten
        assert 0 < sum(c == "#8a8f96" for *_, c in points) < len(points)

    grey()
    best = max((max(t["y"]), t["meta"]["label"]) for t in traces(page, "run and pass") if t["meta"])[1]
    page.get_by_role("button", name=best, exact=True).click()
    assert best not in {(t["meta"] or {}).get("label") for t in traces(page, "run and pass")}
    grey()


def test_a_pair_of_components_is_chosen(several: Path, opened: Opened) -> None:
    page = opened(several)
    section = page.locator("section", has=page.get_by_role("heading", name="Two components side by side"))
    assert section.locator(".chart:visible").count() == 2
    section.get_by_label("Components").select_option("pass and <b>cost</b>")
    titles = section.locator(".chart:visible figcaption bdi").all_inner_texts()
    assert titles == ["pass and <b>cost</b> over time", "pass and <b>cost</b> by group"]
    assert len(traces(page, titles[0])) == 4 * 3


@pytest.mark.parametrize(("kind", "start"), [("PNG", b"\x89PNG\r\n"), ("SVG", b"<svg")])
def test_a_chart_is_saved(several: Path, opened: Opened, kind: str, start: bytes) -> None:
    page = opened(several)
    with page.expect_download() as saving:
        page.get_by_role("button", name=f"Total reward as {kind}").click()
    assert saving.value.suggested_filename == f"Total_reward_reward.{kind.lower()}"
    content = Path(saving.value.path()).read_bytes()
    assert content.startswith(start)
    assert len(content) > 5_000
    if kind == "SVG":
        assert b"corrgrpo-1" in content
        assert b"Total reward" in content


# ---- theme and width ----


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_system_and_the_button(several: Path, opened: Opened, dark: bool) -> None:
    page = opened(several, dark=dark)
    brightness = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    assert (page.evaluate(brightness) < 60) is dark
    traces(page, "Total reward")
    paper = "() => document.querySelector('.chart .main-svg').style.background"
    before = page.evaluate(paper)
    page.locator("#theme").click()
    assert (page.evaluate(brightness) < 60) is not dark
    assert page.evaluate(paper) != before


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["one", "several"])
def test_a_phone_needs_no_scrolling_sideways(
    name: str, opened: Opened, request: pytest.FixtureRequest, dark: bool
) -> None:
    page = opened(request.getfixturevalue(name), dark=dark, width=375, touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    traces(page, "Total reward")
    page.locator("#browser .list button").nth(3).tap()
    for summary in page.locator(".reader summary").all():
        summary.tap()
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    edges = "() => Math.max(...[...document.querySelectorAll('figure, button, input, select')]"
    edges += ".map(e => e.getBoundingClientRect().right))"
    assert page.evaluate(edges) <= 375


# ---- transcripts ----


def test_two_thousand_transcripts_stay_usable(one: Path, opened: Opened) -> None:
    page = opened(one)
    assert found(page) == "1 to 50 of 2000"
    assert page.locator("#browser .list button").count() == 50
    page.get_by_role("button", name="Later").click()
    assert found(page) == "51 to 100 of 2000"
    assert page.locator("#browser *").count() < 2_000
    assert page.locator("*").count() < 12_000
    assert one.stat().st_size < 12_000_000


def test_filters(one: Path, opened: Opened) -> None:
    page = opened(one)
    page.get_by_label("Step, from").fill("3")
    page.get_by_label("Step, to").fill("4")
    assert found(page) == "1 to 50 of 200"
    page.get_by_label("Status").select_option("ok")
    assert found(page) == "1 to 50 of 100"
    page.get_by_label("Reward, from").fill("0.75")
    assert found(page) == "1 to 50 of 50"
    page.get_by_label("Task contains").fill("TASK-24")
    assert found(page) == "1 to 2 of 2"
    facts = page.locator(".reader .facts").first.inner_text().split("\n")
    assert facts[facts.index("reward") + 1] == "0.75"
    page.get_by_label("Reward, to").fill("0.5")
    assert found(page) == "No transcript is like that"
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_function("document.querySelector('#browser [role=status]').textContent.endsWith('of 2000')")
    page.get_by_label("Answer contains").fill("of step 17")
    assert found(page) == "1 to 50 of 100"


def test_the_order_can_be_by_reward(one: Path, opened: Opened) -> None:
    page = opened(one)
    page.get_by_label("Order").select_option("reward, falling")
    assert page.locator(".list .value").first.inner_text() == "0.75"
    page.get_by_label("Order").select_option("reward, rising")
    assert page.locator(".list .value").first.inner_text() == "0"


def test_tokens_are_coloured_on_request(one: Path, opened: Opened) -> None:
    page = opened(one)
    page.get_by_label("Answer contains").fill("answer 50")
    colours = "() => [...document.querySelectorAll('.reader .token')].map(t => t.style.backgroundColor)"
    assert set(page.evaluate(colours)) == {""}
    page.get_by_label("log-probability", exact=True).check()
    # The place in the episode gives the log-probability: 0, -0.25, ... -1.75, and again.
    assert len(set(page.evaluate(colours))) == 8
    assert page.locator(".token[title*='-1.75']").count() > 0
    page.get_by_label("advantage", exact=True).check()
    (colour,) = set(page.evaluate(colours))
    assert colour.startswith("rgba(47, 126, 216")  # member 2: 0.5 above the mean


def test_tool_calls_and_their_answers_are_folded(one: Path, opened: Opened) -> None:
    page = opened(one)
    page.get_by_label("Answer contains").fill("answer 50 of step 9")
    call = page.locator(".reader details.call")
    assert call.count() == 1
    assert call.locator("summary").inner_text() == "Tool call: get_balance"
    assert not call.locator(".token").first.is_visible()
    call.locator("summary").click()
    assert call.locator(".token").first.is_visible()
    # Exact but for the tokens that the ends of the call share with their neighbours.
    assert call.locator("div").evaluate("e => e.textContent") == CALL
    given = page.locator(".reader details.given", has_text="Given to the policy")
    given.locator("summary").click()
    assert given.locator(".said").inner_text() == "result 42"
    page.get_by_label("log-probability", exact=True).check()
    assert call.locator(".token").first.is_visible(), "what was opened stays open"


def test_what_a_model_writes_stays_text(one: Path, opened: Opened) -> None:
    page = opened(one)
    page.get_by_label("Step, to").fill("1")
    scripts = page.locator("script").count()
    for place, text in enumerate(HOSTILE):
        page.locator("#browser .list button").nth(place).click()
        for summary in page.locator(".reader summary").all():
            summary.click()
        shown = page.locator(".reader .said").last.evaluate("e => e.textContent")
        if text.isascii() and text.isprintable():
            assert shown == text
        assert not any(ord(c) < 32 or c in "\u202e\u2066\u200b" or "\ud800" <= c <= "\udfff" for c in shown)
    page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None
    assert page.locator("#browser :is(img, script, iframe, style, a, svg)").count() == 0
    assert page.locator("script").count() == scripts
    assert page.locator("h1").inner_text() == "<i>run<⁄i>"
    assert page.locator("main").is_visible()


def test_the_policy_of_the_page_stops_what_would_get_through(one: Path, chromium: Any) -> None:
    page = chromium.new_page()
    page.goto(one.as_uri())
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.hacked = 1";
        document.body.append(script);
        const picture = document.createElement("img");
        picture.setAttribute("onerror", "window.hacked = 2");
        picture.src = "https://example.invalid/x.png";
        document.body.append(picture);
        fetch("https://example.invalid").catch(() => { window.refused = true; });
    }""")
    page.wait_for_function("window.refused")
    assert page.evaluate("window.hacked") is None
    page.close()


def test_everything_can_be_reached_with_keys(several: Path, opened: Opened) -> None:
    page = opened(several)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.tagName + ':' + (document.activeElement.type ?? '')"))
    assert {"A:", "BUTTON:button", "INPUT:checkbox", "INPUT:radio", "DIV:"} <= seen
    page.locator("#browser .list button").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("#browser .list button").nth(1).get_attribute("aria-current") == "true"
