"""The report in a real browser: nothing is fetched, no error, every picture drawn, tables sort, text can be read."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurecover as nr

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("matplotlib")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,  # the browser takes seconds to start
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed, and a report is tested in it"),
]

VERDICTS = ("exact", "statistical", "approximate", "failed")
KINDS = (*VERDICTS, "nothing", "deep", "composite")
DESKTOP, PHONE = 1200, 375
WIDTHS = ((4, 5), (3, 4), (1, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of every verdict and every kind of network."""
    folder = tmp_path_factory.mktemp("reports")
    truth = nr.simulate.teacher(5, 3, 2, random_state=0)
    X, Y = nr.simulate.sample(truth, 800, random_state=0)
    noise = 0.1 * np.random.default_rng(0).standard_normal(Y.shape)
    twins = np.column_stack([X, X[:, 0]])
    rng = np.random.default_rng(3)
    deep = nr.DeepNetwork([(rng.standard_normal(shape), 0.3 * rng.standard_normal(shape[0])) for shape in WIDTHS])
    made = {
        "exact": nr.recover(X, Y, n_hidden=3, random_state=0),
        "statistical": nr.recover(X, Y + noise, n_hidden=3, random_state=0),
        "approximate": nr.recover(twins, Y, n_hidden=3, random_state=0),
        "failed": nr.recover(X, np.sin(50 * X[:, :2]), n_hidden=3, random_state=0, time_budget=1.0),
        "nothing": nr.recover(X[:20], Y[:20], n_hidden=40, random_state=0),
        "deep": nr.extract(nr.oracle(deep, n_inputs=5), random_state=0),
    }
    for verdict in VERDICTS:
        assert made[verdict].certificate.verdict == verdict
    upper = nr.Network(np.eye(2), None, [[1.0, -1.0]])
    made["composite"] = replace(made["exact"], network=nr.Composite(np.eye(2, 3), [0.1, 0.2], upper), excerpt=None)
    for name, recovery in made.items():
        recovery.save(folder / "r.npz")  # what is drawn is what a file holds
        extra: dict[str, Any] = {}
        if name == "statistical":
            extra = {"truth": truth, "X": X, "Y": Y}
        elif name == "deep":
            extra = {"truth": deep}
        nr.Recovery.load(folder / "r.npz").to_html(folder / f"{name}.html", **extra)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.mark.parametrize("name", KINDS)
def test_the_page_is_whole_by_itself(name: str, folder: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": DESKTOP, "height": 900})
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    address = (folder / f"{name}.html").as_uri()
    page.goto(address)
    assert problems == []
    assert [url for url in requests if not url.startswith("data:")] == [address]
    assert page.title().startswith(name) or name not in VERDICTS
    # Every picture has a size, shapes in it, and no coordinate that is no number.
    pictures = page.evaluate(
        """() => [...document.querySelectorAll("svg")].map((svg) => {
          const box = svg.getBoundingClientRect();
          const shapes = svg.querySelectorAll("path, image, use").length;
          return [box.width, box.height, shapes, svg.innerHTML.includes("nan")];
        })"""
    )
    assert len(pictures) == {"statistical": 7, "deep": 7, "nothing": 0, "composite": 4}.get(name, 5)
    for width, height, shapes, broken in pictures:
        assert width > 100
        assert height > 40
        assert shapes > 4
        assert not broken
    for image in page.query_selector_all("svg image"):
        assert image.bounding_box()["width"] > 20
    ids = page.evaluate("() => [...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))
    page.close()


@pytest.mark.parametrize("name", VERDICTS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(name: str, scheme: str, folder: Path, browser: Any) -> None:
    """WCAG 2.1 AA: every text has a contrast of 4.5 : 1 against what is behind it, in both schemes."""
    page = browser.new_page(viewport={"width": DESKTOP, "height": 900}, color_scheme=scheme)
    page.goto((folder / f"{name}.html").as_uri())
    texts = page.evaluate(
        """() => {
          const rgba = (colour) => colour.match(/[\\d.]+/g).map(Number);
          const behind = (element) => {
            for (; element; element = element.parentElement) {
              const colour = rgba(getComputedStyle(element).backgroundColor);
              if (colour.length === 3 || colour[3] > 0) return colour.slice(0, 3);
            }
            return null;
          };
          const found = [];
          const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            const element = walker.currentNode.parentElement;
            if (!walker.currentNode.data.trim() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
            const style = getComputedStyle(element);
            const own = element.closest("svg") ? style.fill : style.color;
            found.push([walker.currentNode.data.trim(), rgba(own).slice(0, 3), behind(element)]);
          }
          return found;
        }"""
    )
    assert len(texts) > 40
    for text, colour, behind in texts:
        assert contrast(colour, behind) >= 4.5, (text, colour, behind)
    # Marks in pictures: 3 : 1.
    card = page.evaluate("() => getComputedStyle(document.querySelector('section')).backgroundColor.match(/\\d+/g)")
    for number in range(6):
        read = "(name) => getComputedStyle(document.documentElement).getPropertyValue(name)"
        series = page.evaluate(read, f"--series-{number}")
        marks = [int(series.strip()[i : i + 2], 16) for i in (1, 3, 5)]
        assert contrast(marks, [int(c) for c in card]) >= 3.0
    page.close()


def contrast(one: list[float], other: list[float]) -> float:
    """(L₁ + 0.05) / (L₂ + 0.05) with the relative luminance L of WCAG 2.1."""

    def luminance(colour: list[float]) -> float:
        c = np.array(colour) / 255
        return float(
            np.array([0.2126, 0.7152, 0.0722]) @ np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        )

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast([0, 0, 0], [255, 255, 255]) == pytest.approx(21.0)
    assert contrast([119, 119, 119], [255, 255, 255]) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("name", KINDS)
def test_a_phone_needs_no_sideways_scrolling(name: str, folder: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": PHONE, "height": 800})
    page.goto((folder / f"{name}.html").as_uri())
    assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE
    smallest = page.evaluate(
        """() => Math.min(...[...document.querySelectorAll("p, li, td, th button, dd, dt")]
          .map((element) => parseFloat(getComputedStyle(element).fontSize)))"""
    )
    assert smallest >= 13
    page.close()


def test_tables_sort_by_value_and_back(folder: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((folder / "statistical.html").as_uri())
    table = page.locator(".units table.sortable")
    for heading, column in (("bias", 2), ("unit", 0), ("‖ŵ − w‖", 7)):
        button = table.locator("th button", has_text=heading).first

        def values(column: int = column) -> list[float]:
            cells = table.locator(f"tbody tr td:nth-child({column + 1})").all()
            return [float(cell.get_attribute("data-value")) for cell in cells]

        before = values()
        button.click()
        assert values() == sorted(before)
        assert button.locator("xpath=..").get_attribute("aria-sort") == "ascending"
        button.press("Enter")  # the keyboard does what the mouse does
        assert values() == sorted(before, reverse=True)
        assert table.locator("[aria-sort]").count() == 1
    checks = page.locator("#checks table")
    assert not checks.is_visible()  # folded until they are asked for
    page.locator("#checks summary").click()
    checks.locator("th button", has_text="check").first.click()
    names = checks.locator("tbody tr td:first-child").all_inner_texts()
    assert names == sorted(names)
    page.close()


def test_what_is_folded_is_printed(folder: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((folder / "statistical.html").as_uri())
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#checks table").is_visible()
    assert not page.locator("#checks summary").is_visible()
    page.close()
