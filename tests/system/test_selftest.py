"""The kernel on this very machine: known work is never ranked wrongly, a hog is seen."""

from __future__ import annotations

import json

import pytest
from command_line import ngb

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("hog", [False, True])
def test_known_work_is_not_ranked_wrongly(tmp_path, hog: bool):
    done = ngb("selftest", "--seconds", 20, "--json", *["--hog"] * hog, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [finding["units"] for finding in found["findings"]] == [100, 103, 110]
    assert not any(finding["wrong"] for finding in found["findings"]), found
    if hog:
        assert "interference" in found["flags"]
    assert found["passed"]
    assert done.returncode == 0
