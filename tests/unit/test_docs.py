"""What the pages under docs tell people to type is understood."""

from __future__ import annotations

import importlib.util
import re
import shlex
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from command_lines import check_parses
from ruamel.yaml import YAML
from stored_runs import measured_run, slower, stored

from ngraphbench.cli.app import app
from ngraphbench.cli.app import run as ngb
from ngraphbench.errors import NGraphBenchError
from ngraphbench.plugin import discover, load_compiler
from ngraphbench.spec import load_experiment

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page that are in ``language``, those in lists too."""
    fence = rf"^( *)```{language}[^\n]*\n(.*?)^ *```"
    found = re.findall(fence, page.read_text(), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for _, text in found]


def workflow_commands(text: str) -> list[str]:
    jobs = YAML(typ="safe").load(text)["jobs"].values()
    return [line for job in jobs for step in job["steps"] for line in _lines(step.get("run", ""))]


def _lines(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


def ngb_commands(page: Path) -> list[str]:
    """Return every command line of ours in a page's console blocks and workflows."""
    lines = [line for block in blocks(page, "console") for line in _lines(block)]
    for text in blocks(page, "yaml"):
        lines += workflow_commands(text) if "jobs:" in text else []
    found = (re.match(r"(?:\$ )?ngb (.+?)(?:\s+#.*)?$", line.strip()) for line in lines)
    return [re.split(r"\s(?:>|\|\||\||&&)", match[1])[0] for match in found if match]


COMMANDS = [
    pytest.param(line, id=f"{page.relative_to(DOCS)}-{i}")
    for page in PAGES
    for i, line in enumerate(ngb_commands(page))
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_docs_parses(line: str) -> None:
    check_parses(line)


def test_the_workflow_is_one() -> None:
    (text,) = blocks(DOCS / "ci.md", "yaml")
    workflow = YAML(typ="safe").load(text)
    (job,) = workflow["jobs"].values()
    assert workflow["on"] == "pull_request"
    assert job["runs-on"]
    assert all({"run", "uses"} & set(step) for step in job["steps"])
    commands = " ".join(workflow_commands(text))
    # Without this the shell would end before the comment is written.
    assert "|| code=$?" in commands
    assert 'exit "$code"' in commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_python_of_the_docs_compiles(page: Path) -> None:
    for text in blocks(page, "python"):
        compile(text, str(page), "exec")


def test_what_is_included_is_there() -> None:
    text = (DOCS / "howto" / "add-a-compiler.md").read_text()
    included = re.findall(r'^--8<-- "(.+)"$', text, re.MULTILINE)
    assert len(included) == 3
    assert all((DOCS.parent / path).is_file() for path in included)


def test_the_experiments_are_ones(tmp_path: Path) -> None:
    experiments = [
        text for page in PAGES for text in blocks(page, "yaml") if text.startswith("name: ")
    ]
    experiments = [text for text in experiments if "models:" in text]
    assert experiments
    for text in experiments:
        (tmp_path / "experiment.yaml").write_text(text)
        assert load_experiment(tmp_path / "experiment.yaml").models


def test_what_is_shown_of_comparing_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(measured_run(), tmp_path / "runs" / "before")
    stored(slower(0.08), tmp_path / "runs" / "after")
    monkeypatch.chdir(tmp_path)
    page = DOCS / "compare.md"
    commands = [line for line in ngb_commands(page) if line.startswith("compare ")]
    assert [ngb(shlex.split(line)) for line in commands] == [0, 4]
    (text,) = blocks(page, "python")
    capsys.readouterr()
    exec(compile(text, str(page), "exec"), {})
    assert "['m b=8 openvino']" in capsys.readouterr().out


@pytest.fixture(scope="module")
def generate() -> Any:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_declared_option_is_in_the_reference(generate: Any) -> None:
    page = generate.options_page()
    for name, target in discover().items():
        with suppress(NGraphBenchError):
            section = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
            for option in load_compiler(target).options:
                assert f"| `{option.name}` |" in section


def test_every_command_is_in_the_reference(generate: Any) -> None:
    page = generate.commands_page()
    for name in typer.main.get_command(app).commands:
        assert f"## ngb {name}" in page
    assert "<code>--threshold</code> <code>PERCENT</code>" in page
    assert "4 a regression" in page
    # A cell too many or too few would break its table.
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}


def test_links_to_files_outside_the_site_become_names(generate: Any) -> None:
    told = generate.on_page_markdown("[a](../tests/x.py), [b](models.md), [c](../models.md)")
    assert told == "a (`tests/x.py`), [b](models.md), [c](../models.md)"


MADE = {"reference/commands.md": "commands_page", "reference/options.md": "options_page"}
"""Pages that are written when the site is built, and what writes them."""


def anchors(text: str) -> set[str]:
    """Return what a page's headings are reached by, as Python-Markdown names them."""
    prose = re.sub(r"^( *)```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in heads}


def astray(page: Path, text: str, made: dict[Path, str]) -> list[str]:
    """Return the links of a page that lead nowhere."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve()
        if not path:
            there = text
        elif target in made:
            there = made[target]
        elif target.exists():
            there = target.read_text() if target.suffix == ".md" else ""
        else:
            found.append(link)
            continue
        if anchor and anchor not in anchors(there):
            found.append(link)
    return found


def test_links_lead_somewhere(generate: Any) -> None:
    made = {DOCS / name: getattr(generate, writer)() for name, writer in MADE.items()}
    root = DOCS.parent
    pages = [*PAGES, *root.glob("*.md")]
    assert {page.name: bad for page in pages if (bad := astray(page, page.read_text(), made))} == {}


@pytest.mark.parametrize("link", ["no.md", "models.md#nowhere", "#nowhere", "../tests/no.py"])
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    text = f"# Here\n\n[a](#here), [b](models.md), [c]({link}), <https://x.org>, [d](https://x.org)"
    assert astray(DOCS / "compare.md", text, {}) == [link]


def test_every_entry_of_the_navigation_is_a_page() -> None:
    entries = re.findall(r": (\S+\.md)$", (DOCS.parent / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(entries) > 15
    assert [name for name in entries if not (DOCS / name).is_file() and name not in MADE] == []


def test_every_page_is_in_the_navigation() -> None:
    text = (DOCS.parent / "mkdocs.yml").read_text()
    for page in PAGES:
        assert f": {page.relative_to(DOCS)}\n" in text
