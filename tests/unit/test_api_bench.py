from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ngraphbench import api


def test_a_lone_compiler_and_batch_size_stand_for_a_list_of_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(api, "execute", lambda experiment, **_: seen.append(experiment))
    api.bench("m.onnx", compilers="onnxruntime", batch_sizes=2, out=tmp_path)
    api.bench(["m.onnx"], compilers=["onnxruntime"], batch_sizes=[2], out=tmp_path)
    assert seen[0] == seen[1]
