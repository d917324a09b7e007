"""PyTorch's inference mode, entered once and not in every run.

Entering it anew costs some 9 us, half as much again for the smallest models, and a user's own
loop does not pay that either.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

__all__ = ["INFERENCE", "enter_in_this_thread"]

_THREAD = threading.local()


class _Inference:
    """Inference mode in the main thread, for as long as any program is open."""

    def __init__(self) -> None:
        self._programs = 0
        self._mode: Any = None

    def enter(self) -> None:
        if self._programs == 0:
            self._mode = importlib.import_module("torch").inference_mode()
            self._mode.__enter__()
        self._programs += 1

    def leave(self) -> None:
        self._programs -= 1
        if self._programs == 0:
            self._mode.__exit__(None, None, None)


INFERENCE = _Inference()


def enter_in_this_thread(torch: Any) -> None:
    """Enter inference mode where this thread is not in it; it ends with the thread."""
    if not torch.is_inference_mode_enabled():
        # The mode ends with this object, in whichever thread that goes: so the thread keeps it.
        _THREAD.mode = torch.inference_mode()
        _THREAD.mode.__enter__()
