"""The page in a real browser: from ``file://``, offline, in both themes, narrow and wide."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import write_run
from ngraphbench.api import Run
from ngraphbench.report.html import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from curve_fixture import depth_run
from run_fixture import FELL_BACK, HOSTILE, full_run, run_of_devices, run_of_lengths

playwright = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is missing: pip install -e '.[dev]'"
)

BROWSER = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(
    not BROWSER.exists(),
    reason=f"the page was not seen in a browser: no {BROWSER}; apt-get install chromium",
)

GOLDEN = Path(__file__).parents[1] / "golden" / "quickstart"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
PAGES = ("quickstart", "larger", "hostile", "summed", "depth")

CHARTS = {
    **dict.fromkeys(
        ("quickstart", "larger", "hostile"),
        ("speedup", "throughput", "order", "scaling", "friction", "costs", "breakeven"),
    ),
    "summed": ("speedup",),
    "depth": ("depth",),
}
"""What each page must draw."""


@dataclass
class Told:
    """What a page said and asked for while it was looked at."""

    page: Any
    console: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the pages: two runs, a hostile one, and one of so many cells that it is summed up."""
    folder = tmp_path_factory.mktemp("pages")
    found = {name: folder / f"{name}.html" for name in PAGES}
    Run.open(GOLDEN).report(found["quickstart"])
    write_run(folder / "larger", 150, launches=1)
    Run.open(folder / "larger").report(found["larger"])
    write_run(folder / "summed", 5100, launches=0)
    Run.open(folder / "summed").report(found["summed"])
    write_report(found["hostile"], *full_run("quick").parts, title=HOSTILE)
    lines = {"eager": {d: 1.0 + 2.0 * d for d in (1, 2, 4)}, "openvino": {1: 2.0, 2: 3.0, 4: "oom"}}
    write_report(found["depth"], *depth_run(lines).parts, title="depth")
    found["devices"] = folder / "devices.html"
    write_report(found["devices"], *run_of_devices().parts, title="devices")
    found["lengths"] = folder / "lengths.html"
    write_report(found["lengths"], *run_of_lengths().parts, title="lengths")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=str(BROWSER), args=list(FLAGS))
        yield found
        found.close()


def open_page(browser: Any, path: Path, *, width: int = 1280, theme: str = "light") -> Told:
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
    )
    page.set_default_timeout(15_000)
    told = Told(page)
    page.on("console", lambda message: told.console.append(message.text))
    page.on("pageerror", lambda error: told.console.append(str(error)))
    page.on("dialog", lambda dialog: told.console.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: told.asked.append(request.url))
    page.goto(path.as_uri())
    return told


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "theme"), [(380, "light"), (1600, "dark")])
def test_it_loads_offline_quietly_and_fits(
    browser: Any, pages: dict[str, Path], name: str, width: int, theme: str
) -> None:
    told = open_page(browser, pages[name], width=width, theme=theme)
    assert told.console == []
    assert told.asked == [pages[name].as_uri()]
    assert told.page.evaluate("document.documentElement.scrollWidth") <= width
    assert told.page.evaluate(TOO_FAINT) == []
    told.page.close()


def test_text_that_is_too_faint_would_be_found(browser: Any, pages: dict[str, Path]) -> None:
    page = open_page(browser, pages["quickstart"]).page
    page.evaluate("document.documentElement.style.setProperty('--muted', '#8d8d8d')")
    found = page.evaluate(TOO_FAINT)
    assert any(kind.startswith("text|a") for kind in found)
    assert any(kind.startswith("P|lead") for kind in found)
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_every_chart_has_marks(browser: Any, pages: dict[str, Path], name: str) -> None:
    told = open_page(browser, pages[name])
    counts = told.page.evaluate(
        """Object.fromEntries(Array.from(document.querySelectorAll("figure.chart")).map(
             (chart) => [chart.id, Array.from(chart.querySelectorAll(".panel")).map(
               (panel) => Array.from(panel.querySelectorAll(".m use")).filter(
                 (mark) => mark.getBoundingClientRect().width > 0).length)]))"""
    )
    assert set(counts) >= {f"chart-{chart}" for chart in CHARTS[name]}
    assert all(marks and min(marks) > 0 for marks in counts.values()), counts
    told.page.close()


def test_filters_hold_for_the_whole_page(browser: Any, pages: dict[str, Path]) -> None:
    told = open_page(browser, pages["quickstart"])
    page = told.page
    visible = "els => els.filter((el) => el.getClientRects().length).length"
    assert page.eval_on_selector_all("[data-cell]", visible) == 16
    panels = page.eval_on_selector_all("#chart-throughput .panel", visible)
    page.click("details[data-facet=m] summary")
    page.uncheck("details[data-facet=m] input >> nth=0")
    assert page.eval_on_selector_all("[data-cell]", visible) == 8
    assert page.eval_on_selector_all("#chart-throughput .panel", visible) == panels - 1
    assert page.inner_text("#shown") == "8 of 16 cells"
    page.click("details[data-facet=m] [data-none]")
    assert page.is_visible("#chart-throughput .nothing")
    page.keyboard.press("Escape")
    page.click("#filters [type=reset]")
    page.wait_for_selector("#shown:empty", state="attached")
    assert page.eval_on_selector_all("[data-cell]", visible) == 16
    assert told.console == []
    page.close()


def test_a_filter_by_shape_holds_for_the_whole_page(browser: Any, pages: dict[str, Path]) -> None:
    page = open_page(browser, pages["lengths"]).page
    visible = "els => els.filter((el) => el.getClientRects().length).length"
    things = ("[data-cell]", "section.group", ".panel", "#orders + p + .card tbody tr")
    before = {thing: page.eval_on_selector_all(thing, visible) for thing in things}
    assert before["[data-cell]"] == 16
    page.click("details[data-facet=s] summary")
    assert page.locator("details[data-facet=s] label").all_inner_texts() == [
        "ids batch×128",
        "ids batch×256",
    ]
    page.uncheck("details[data-facet=s] input >> nth=1")
    after = {thing: page.eval_on_selector_all(thing, visible) for thing in things}
    assert after == {thing: count // 2 for thing, count in before.items()}
    assert "256" not in page.inner_text("main section.group:visible >> nth=0")
    assert page.inner_text("#shown") == "8 of 16 cells"
    page.close()


SEEN = """() => {
  const seen = (query) => Array.from(document.querySelectorAll(query)).filter(
    (el) => el.getClientRects().length);
  const marks = seen("figure.chart .panel .m").filter((mark) => mark.dataset.h);
  return {
    cells: seen("[data-cell]").length,
    rows: seen("section.group tbody tr").map((row) => [
      row.closest("section").querySelector("h3").textContent,
      row.querySelector("td.name").textContent.trim().split(/\\s/)[0]].join(", ")),
    spots: seen("td.spot").length,
    answers: seen(".answers li").length,
    leads: new Set(marks.map((mark) => mark.dataset.h)).size,
    astray: marks.filter(
      (mark) => !document.getElementById(mark.dataset.h).getClientRects().length).length,
  };
}"""
"""Returns what is to be seen: cells, rows as words, marks' evidence, and how much of it is not."""

# What each filter turns off, and what a row's words have of it.
UNTICKED = {
    "m": ("mlp", "mlp ["),
    "c": ("onnxruntime", ", onnxruntime"),
    "d": ("board/cpu", "board/cpu"),
    "b": ("4", "batch 4,"),
    "s": ("ids batch×256", "batch×256"),
}


def untick(page: Any, facet: str) -> None:
    page.click(f"details[data-facet={facet}] summary")
    page.locator(f"details[data-facet={facet}] label").get_by_text(
        UNTICKED[facet][0], exact=True
    ).click()
    page.keyboard.press("Escape")


def test_each_filter_and_two_at_once_hide_what_they_name_and_nothing_else(
    browser: Any, pages: dict[str, Path]
) -> None:
    told = open_page(browser, pages["devices"])
    page = told.page
    before = page.evaluate(SEEN)
    assert [len(before["rows"]), before["spots"], before["leads"], before["astray"]] == [72] * 3 + [
        0
    ]
    assert before["answers"] == 24
    for facets in (*UNTICKED, "cd", "bs"):
        for facet in facets:
            untick(page, facet)
        words = [UNTICKED[facet][1] for facet in facets]
        wanted = [row for row in before["rows"] if not any(word in row for word in words)]
        assert 0 < len(wanted) < 72
        after = page.evaluate(SEEN)
        assert after["rows"] == wanted
        assert {after[key] for key in ("cells", "spots", "leads")} == {len(wanted)}
        assert after["astray"] == 0
        assert after["answers"] == len({row.rpartition(", ")[0] for row in wanted})
        assert page.inner_text("#shown") == f"{len(wanted)} of 72 cells"
        page.click("#filters [type=reset]")
        page.wait_for_selector("#shown:empty", state="attached")
        assert page.evaluate(SEEN) == before
    assert told.console == []
    page.close()


def test_what_fell_back_is_seen_struck_out(browser: Any, pages: dict[str, Path]) -> None:
    page = open_page(browser, pages["devices"]).page
    struck = """Array.from(document.querySelectorAll("body *")).filter((el) =>
      getComputedStyle(el).textDecorationLine.includes("line-through") && el.getClientRects().length
    ).map((el) => el.textContent)"""
    name, rate, word = page.evaluate(struck)
    assert (name, word) == ("openvino", "partly compiled")
    assert float(rate.replace(",", "")) > 0
    assert page.is_visible(f"text={FELL_BACK}")
    page.close()


def test_marks_are_read_with_the_pointer_and_with_the_keyboard(
    browser: Any, pages: dict[str, Path]
) -> None:
    page = open_page(browser, pages["quickstart"]).page
    page.hover("#chart-speedup .panel .m use >> nth=0")
    page.wait_for_selector("#tip:not([hidden])")
    assert "against eager" in page.inner_text("#tip")
    first = page.inner_text("#tip")
    page.focus("#chart-speedup .panel >> nth=0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#tip") != first
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector(':target').matches('[data-cell]')")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.close()


def test_it_can_be_read_without_script_and_printed(
    browser: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["quickstart"].as_uri())
    assert page.locator("#chart-throughput .m use").count() > 0
    assert not page.is_visible("#filters")
    page.pdf(path=str(tmp_path / "page.pdf"))
    assert (tmp_path / "page.pdf").stat().st_size > 50_000
    context.close()


TOO_FAINT = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => {
    const [r, g, b] = c.map((v) => {
      const s = v / 255;
      return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (top, under) => {
    const a = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => top[i] * a + under[i] * (1 - a));
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) layers.push(colour);
    }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const found = [];
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && seen.size < 4000) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const svg = element.namespaceURI.endsWith("svg");
    const kind = [element.tagName, element.className.baseVal ?? element.className,
      element.parentElement.className].join("|");
    if (seen.has(kind) || element.closest(":disabled")) continue;
    seen.add(kind);
    const back = ground(element);
    const front = over(parse(svg ? style.fill : style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${kind} ${ratio.toFixed(2)}`);
  }
  return found;
}"""
"""Returns each kind of visible text whose contrast is below that of WCAG 2 AA."""
