"""What the pages under docs tell people to type is understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from ruamel.yaml import YAML

from ngraphbench.cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page that are in ``language``."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


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
    name, *arguments = shlex.split(line)
    command = typer.main.get_command(app).commands[name]
    if isinstance(command, typer.core.TyperGroup):
        name, *arguments = arguments
        command = command.commands[name]
    context = command.make_context(name, arguments)
    assert context.args == []


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
