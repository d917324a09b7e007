"""Each compiler's own conformance suite, inside its own managed environment.

It runs where that environment was made (`ngb env create NAME`); light ones are made here, in a
folder that goes again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ngraphbench.environments.interpreters import interpreter_tag
from ngraphbench.environments.managed import find_environment, provided, remove_environment
from ngraphbench.errors import EnvironmentFailed
from ngraphbench.locks import lock_names, request_for
from ngraphbench.plugin import discover
from ngraphbench.session.probing import probe_all
from ngraphbench.testing.elsewhere import run_suite
from ngraphbench.types import Device

HERE = Path(__file__).parent
LIGHT = ("mnn", "ncnn")
"""Environments that are small enough to be made for this test alone."""

SUITES = {name: path for name in lock_names() if (path := HERE / f"test_{name}.py").exists()}


@pytest.fixture
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Return the Python of a compiler's managed environment, or skip and say why."""
    name: str = request.param
    asked = request_for(name)
    found = find_environment(asked.id(interpreter_tag()))
    if found is not None and found.state == "ready":
        yield found.python
        return
    if name not in LIGHT:
        pytest.skip(f"{name} has no environment here: `ngb env create {name}` ({asked.size})")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGRAPHBENCH_ENVIRONMENTS", str(tmp_path / "store"))
        try:
            with provided(asked) as made:
                yield made.python
        except EnvironmentFailed as error:
            pytest.skip(f"{name} cannot be installed here: {error}")
        remove_environment(made.id)
    assert not (tmp_path / "store").exists()


# The suite judges threads and times, whoever runs it.
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "python"), [(name, name) for name in SUITES], ids=list(SUITES), indirect=["python"]
)
def test_the_suite_passes_in_its_own_environment(name: str, python: Path) -> None:
    target = discover().get(name)
    if target is not None:
        support = probe_all({name: target}, Device(), pythons={name: python})[name]
        if not support.ok:
            # Its suite would skip every test, and pass for it.
            pytest.skip(support.hint)
    assert run_suite(python, SUITES[name], arguments=["-q", "-x"]) == os.EX_OK
