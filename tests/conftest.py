"""What holds for all tests: no trace in the user's state folder, no example judged by time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from ngraphbench.testing.parts import JUDGES_TIME

# On a shared machine a deadline says how busy it is.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")


# Tests that import ONNX Runtime themselves tell its makers nothing either.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Checks of threads and of work done see the machine alone, and so do their planted faults."""
    for item in items:
        if isinstance(item, pytest.Function):
            planted = item.callspec.params.get("test") if hasattr(item, "callspec") else ""
            if not JUDGES_TIME.isdisjoint({item.originalname, planted}):
                item.add_marker(pytest.mark.alone)


@pytest.fixture(scope="session", autouse=True)
def _own_state_folder() -> Iterator[None]:
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory(prefix="ngb-state-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before
