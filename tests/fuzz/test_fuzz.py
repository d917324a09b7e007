"""A slice of what ``make fuzz`` does for as long as it is given: the same few inputs each time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fuzz import try_inputs
from targets import TARGETS, Target

INPUTS = {"experiment": 40, "journal": 10, "stream": 100, "answers": 12, "onnx": 25}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_no_input_leads_to_a_traceback_a_hang_or_a_lost_record(target: Target) -> None:
    try_inputs(target, INPUTS[target.name], number=7, note=lambda drawn: None)
