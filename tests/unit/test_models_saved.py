"""A saved program is data: nothing that is pickled in it runs."""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ngraphbench.errors import CompileFailed
from ngraphbench.models.saved import load_saved

torch = pytest.importorskip("torch")


class Planted:
    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.mark,)


def test_pickled_examples_in_a_program_run_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    good, bad, mark = tmp_path / "good.pt2", tmp_path / "bad.pt2", tmp_path / "mark"
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(1, 2),))
    torch.export.save(program, str(good))
    planted = io.BytesIO()
    torch.save(Planted(mark), planted)
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(bad, "w") as new:
        replaced = [name for name in old.namelist() if "sample_inputs" in name]
        assert replaced
        for name in old.namelist():
            new.writestr(name, planted.getvalue() if name in replaced else old.read(name))
    with pytest.raises(CompileFailed):
        load_saved(bad, lambda examples, _: examples)
    assert not mark.exists()
    assert load_saved(good, lambda examples, _: examples)[1] is not None
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
