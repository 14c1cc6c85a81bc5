"""The documentation site builds without a warning, and a browser shows it without asking any other place."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md") if "_build" not in page.parts)


pytestmark = pytest.mark.slow  # the whole site is built


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(out)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return out


def test_every_page_is_built_and_listed(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    for page in PAGES:
        assert (site / page).with_suffix(".html").exists()
        assert str(page) == "index" or f'href="{page}.html"' in front


def test_a_browser_shows_it_by_itself(site: Path) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 390, "height": 844})
            errors: list[str] = []
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.on("request", lambda request: errors.append(request.url) if request.url[:5] != "file:" else None)
            for name in ("index", "tutorial", "papers/gklw19", "gallery", "api"):
                page.goto((site / f"{name}.html").as_uri())
                broken = "() => [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
                page.evaluate("() => window.scrollTo(0, document.body.scrollHeight)")
                assert page.evaluate(broken) == []
                assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
            assert page.goto((site / "papers/gklw19.html").as_uri()) is not None
            assert page.locator("math").count() > 3
            assert errors == []
        finally:
            browser.close()
