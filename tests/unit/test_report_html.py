from __future__ import annotations

import base64
import hashlib
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from run_fixture import (
    ESCAPES,
    FELL_BACK,
    HOSTILE,
    Run,
    full_run,
    model,
    run_of_devices,
    run_of_lengths,
)

from ngraphbench.errors import NGraphBenchError
from ngraphbench.report.html import write_report

VOID = {"meta", "br", "col", "line", "rect", "circle", "input"}


class Page(HTMLParser):
    """Collects tags, links, ids and text, and checks that tags nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.struck: list[str] = []
        self.text = self.script = self.style = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self.text += data
            if "s" in self._open:
                self.struck.append(data)
        elif "style" in self._open:
            self.style += data
        else:
            self.script += data

    def values(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags if name in attrs]


def page_of(run: Run, folder: Path, *, root: Path | None = None, title: str = "run") -> Page:
    path = folder / "report.html"
    write_report(path, *run.parts, title=title, root=root)
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(full_run("quick"), tmp_path_factory.mktemp("run"), title=HOSTILE)


def test_the_answer_comes_first(page: Page) -> None:
    text = " ".join(page.text.split())
    places = [
        text.index(part)
        for part in (
            "swap places under openvino at batch 8",
            "Speed-up over the baseline",
            "Throughput with its interval",
            "One machine (Example CPU",
        )
    ]
    assert places == sorted(places)


def test_nothing_is_fetched_and_one_known_script_acts(page: Page) -> None:
    tags = [tag for tag, _ in page.tags]
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(tags)
    assert (tags.count("script"), tags.count("style")) == (1, 1)
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert page.values("src") == page.values("style") == []
    assert not any(":" in href or href.startswith("/") for href in page.values("href"))


def test_the_policy_names_the_digests_of_what_is_there(page: Page) -> None:
    (policy,) = (a["content"] or "" for _, a in page.tags if "http-equiv" in a)
    for kind, text in (("script", page.script), ("style", page.style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_hostile_names_are_inert_and_shown(page: Page) -> None:
    assert HOSTILE in page.text
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    assert "evil␛[31m[bold]" in page.text


def test_hostile_names_of_nodes_and_packages_are_text(tmp_path: Path) -> None:
    run = full_run("quick")
    record = run.records[0]
    record["verification"] = {**record["verification"], "notes": [HOSTILE], "reference": ESCAPES}
    record["coverage"] = {HOSTILE: ESCAPES, "nodes": {HOSTILE: 3}}
    record["environment"]["packages"] = {HOSTILE: ESCAPES}
    record["flags"] = [{"flag": "partly-compiled", "detail": f"38% of {HOSTILE} fell back"}]
    page = page_of(run, tmp_path)
    assert "img" not in {tag for tag, _ in page.tags}
    assert page.text.count(HOSTILE) > 6
    assert "\x1b" not in page.text
    assert "38% of <img" in page.text


def test_what_fell_back_is_struck_out_with_its_reason(tmp_path: Path) -> None:
    run = run_of_devices()
    page = page_of(run, tmp_path)
    rate = run.records[2]["summary"]["throughput_per_s"]["estimate"]
    # Its name and its rate in the results, its word in the table of support, and nothing else.
    assert page.struck == ["openvino", f"{rate:.0f}", "partly compiled"]
    assert FELL_BACK in page.text
    run.records[2]["flags"] = []
    assert page_of(run, tmp_path).struck == []


def test_links_within_the_page_lead_somewhere(page: Page) -> None:
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    inner = {href[1:] for href in page.values("href") if href.startswith("#")}
    assert inner <= set(ids)


def test_every_number_has_its_evidence(page: Page) -> None:
    run = full_run("quick")
    hrefs = set(page.values("href"))
    for record in run.records:
        if record["measurement"]:
            assert record["measurement"]["samples"] in hrefs
        assert record["command"] in page.text
    assert "javascript%3Aalert%281%29" in hrefs


def test_failures_are_told(page: Page) -> None:
    text = " ".join(page.text.split())
    for part in (
        "✕ crashed signal:SIGSEGV",
        "The worker died while it compiled the program. See its log.",
        "✕ wrong values",
        "– unsupported batch-fixed",
        "its outputs are wrong, so its speed is not shown",
    ):
        assert part in text


def test_cautions_facts_and_costs_are_there(page: Page) -> None:
    text = " ".join(page.text.split())
    for part in (
        "single launch: differences of 10 % and more",
        "Random weights can hide overflow",
        "One machine (Example CPU 7000 2-Core)",
        "Inputs are hot",
        "A/A control passed",
        "512 MiB",
        "compile, cold",
        "PSI cpu 22 %",
        "OMP_NUM_THREADS",
        "eager-fp64",
    ):
        assert part in text


def test_links_follow_a_page_written_elsewhere(tmp_path: Path) -> None:
    run = full_run("quick")
    elsewhere = tmp_path / "pages"
    elsewhere.mkdir()
    page = page_of(run, elsewhere, root=tmp_path / "runs" / "a b")
    samples = run.records[0]["measurement"]["samples"]
    assert f"../runs/a%20b/{samples}" in page.values("href")


@pytest.mark.parametrize("log", ["../../etc/passwd", "/etc/passwd", "//example.org/x", ""])
def test_paths_out_of_the_run_are_no_links(tmp_path: Path, log: str) -> None:
    run = Run()
    run.cell(run.session(), model("m"), "eager", 1, status="failed", log=log)
    page = page_of(run, tmp_path)
    assert not any("passwd" in href or "example" in href for href in page.values("href"))


def test_shapes_are_named_as_people_write_them_and_can_be_filtered(tmp_path: Path) -> None:
    page = page_of(run_of_lengths(), tmp_path)
    assert "bert [ids batch×128]" in page.text
    assert "8 comparisons (2 models, 2 batch sizes)" in page.text
    assert page.values("data-facet") == ["m", "c", "b", "s"]
    by_shape = [attrs["data-s"] for tag, attrs in page.tags if "data-cell" in attrs]
    assert sorted(by_shape) == ["0"] * 8 + ["1"] * 8


def test_an_empty_run_is_a_page_too(tmp_path: Path) -> None:
    assert "Nothing was measured." in page_of(Run(), tmp_path).text


def test_a_run_without_session_records_is_a_page_too(tmp_path: Path) -> None:
    run = full_run("quick")
    run.sessions.clear()
    run.samples.clear()
    assert "unresolved" in page_of(run, tmp_path).text


def test_odd_values_are_shown(tmp_path: Path) -> None:
    run = Run()
    session = run.session(canaries={}, sentinel=None, launch_sd=None, status="interrupted")
    record = run.cell(session, model("m\ud800"), "eager", 1, ms=10.0)
    run.summarise()
    record["verification"] = {**record["verification"], "max_abs": float("nan"), "tolerance": None}
    record["summary"]["throughput_per_s"]["high"] = float("inf")
    record["message"] = "x" * 10_000
    page = page_of(run, tmp_path)
    assert "No A/A control." in page.text
    assert "is interrupted" in page.text


def test_without_jinja2_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(NGraphBenchError, match=r"pip install 'ngraphbench\[report\]'"):
        write_report(tmp_path / "report.html", [], [], Run().read, title="t")
    assert list(tmp_path.iterdir()) == []
