"""A Chromium that is driven like a person's: real clicks and keys, no network."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from web_runs import write_run

from corrgrpo_train.report.__main__ import main


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install 'corrgrpo[web]'")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # Chromium's own sandbox cannot start as root in a container; the pages are our own files.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file as a page; at the end no script may have failed and nothing may have been asked of a network."""
    contexts, troubles = [], []

    def open_page(path: Path, *, dark: bool = False, width: int = 1300, touch: bool = False) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            has_touch=touch,
            is_mobile=touch,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda said: said.type == "error" and troubles.append(said.text))
        page.on(
            "request", lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or troubles.append(asked.url)
        )
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture(scope="session")
def one(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one run with 2,000 transcripts."""
    folder = write_run(tmp_path_factory.mktemp("web") / "<i>run</i>".replace("/", "⁄"), members=100)
    assert main([str(folder)]) == 0
    return folder / "report.html"


@pytest.fixture(scope="session")
def several(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two methods with two seeds each."""
    root = tmp_path_factory.mktemp("web")
    runs = [write_run(root / f"{m}-{s}", method=m, seed=s) for m in ("corrgrpo", "grpo") for s in (0, 1)]
    path = root / "all.html"
    assert main([*map(str, runs), "--output", str(path)]) == 0
    return path
