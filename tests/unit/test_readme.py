"""What the readme tells people to type is understood."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_lines import check_parses

from ngraphbench.spec import load_experiment

README = (Path(__file__).parents[2] / "README.md").read_text()
COMMANDS = re.findall(r"^ngb (.+?)(?:\s+#.*)?$", README, re.MULTILINE)


def test_the_readme_has_commands() -> None:
    assert len(COMMANDS) >= 9


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_readme_parses(line: str) -> None:
    check_parses(line)


def test_the_experiment_of_the_readme_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "experiment.yaml").write_text(text)
    assert load_experiment(tmp_path / "experiment.yaml").name == "archetypes"
