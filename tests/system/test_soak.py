"""What ``make bench-soak`` does 2,000 times, a few times: nothing is left, and nothing grows."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak_worker import FAULTS
from soaking import soak

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_lock")]

SESSIONS = len(FAULTS)


def test_faulty_compilers_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = soak(tmp_path, SESSIONS, whole_every=FAULTS.index("litter") + 1)
    assert found.left == []
    assert set(found.faults) == set(FAULTS)
    assert found.whole == 1
    assert len(found.statuses) >= 5, found.statuses
    # After the first few, the process holds no more files and threads than before.
    later = found.rows[4:]
    assert max(row[1] for row in later) <= max(row[1] for row in found.rows[:4])
    assert max(row[2] for row in later) <= max(row[2] for row in found.rows[:4])
