"""Files that are wrong as files end in one sentence, whatever is wrong with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from ngraphbench.errors import SpecError
from ngraphbench.models.onnxdata import copy_unlinked, load_whole
from ngraphbench.models.onnxfile import open_onnx, weight_arrays
from ngraphbench.models.sources import resolve_model

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cases.onnx_building import model, node, normal, value
from tests.cases.onnx_cases import external_model, external_tensor

WEIGHTS = normal(8, 4).tobytes()


def written(folder: Path, location: str = "w.bin", **entries: str) -> Path:
    """Write a model whose external tensor says what ``entries`` say, and its data."""
    made = external_model(location)
    for entry in made.graph.initializer[0].external_data:
        entry.value = entries.get(entry.key, entry.value)
    path = folder / "net.onnx"
    path.write_bytes(made.SerializeToString())
    (folder / "w.bin").write_bytes(WEIGHTS)
    return path


def refused(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        resolve_model(str(path), base=Path("/"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"offset": "-8"}, "from byte -8"),
        ({"offset": "9" * 40}, "from byte 999"),
        ({"length": "abc"}, "said to be abc bytes"),
        ({"length": "64"}, "its shape needs 128"),
        ({"offset": "1"}, "needs 129 bytes of its data file 'w.bin', which has 128"),
    ],
)
def test_places_in_a_data_file(tmp_path: Path, entries: dict[str, str], words: str) -> None:
    assert words in refused(written(tmp_path, **entries))


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("y" * 300, "File name too long"),
        ("folder", "which is not beside it"),
        ("pipe", "which is not beside it"),
        ("loop", "which is not beside it"),
        ("", "outside the model's folder"),
        ("a\0b", "which is not beside it"),
        ("C:\\w.bin", "outside the model's folder"),
        ("..\\w.bin", "outside the model's folder"),
        ("out", "is a link out of the model's folder"),
    ],
)
def test_places_of_a_data_file(tmp_path: Path, location: str, words: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "folder").mkdir()
    os.mkfifo(home / "pipe")
    (home / "loop").symlink_to("loop")
    (tmp_path / "w.bin").write_bytes(WEIGHTS)
    (home / "out").symlink_to(tmp_path / "w.bin")
    assert words in refused(written(home, location))


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_data_files_may_be_links(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    (tmp_path / "blobs").mkdir()
    path = written(tmp_path)
    (tmp_path / "w.bin").rename(tmp_path / "blobs" / "w")
    link(tmp_path / "blobs" / "w", tmp_path / "w.bin")
    ((values, dtype),) = weight_arrays(open_onnx(path))
    assert (values.tobytes(), values.shape, dtype) == (WEIGHTS, (8, 4), "float32")
    assert load_whole(path).graph.initializer[0].raw_data == WEIGHTS
    (tmp_path / "copy").mkdir()
    copied = copy_unlinked(path, tmp_path / "copy")
    assert copied == (tmp_path / "copy" / path.name)
    assert onnx.load(copied).graph.initializer[0].raw_data == WEIGHTS
    assert copy_unlinked(copied, tmp_path) == copied


@pytest.mark.parametrize("read", [load_whole, lambda path: copy_unlinked(path, path.parent)])
def test_a_bound_file_that_is_no_model(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"this is no model")
    with pytest.raises(SpecError, match="cannot be read as ONNX"):
        read(path)


def test_tensors_without_a_length_share_a_file(tmp_path: Path) -> None:
    made = model([node("Add", ["a", "b"], ["y"])], [], [value("y", shape=[2, 4])])
    for place, name in enumerate(("a", "b")):
        tensor = external_tensor(name, [2, 4], "w.bin")
        entries = {"location": "w.bin", "offset": str(32 * place)}
        del tensor.external_data[:]
        for key, text in entries.items():
            tensor.external_data.add(key=key, value=text)
        made.graph.initializer.append(tensor)
    path = tmp_path / "net.onnx"
    path.write_bytes(made.SerializeToString())
    (tmp_path / "w.bin").write_bytes(WEIGHTS[:64])
    assert open_onnx(path).size_bytes > 64
    assert [len(t.raw_data) for t in load_whole(path).graph.initializer] == [32, 32]
    (tmp_path / "w.bin").write_bytes(WEIGHTS[:60])
    assert "needs 64 bytes" in refused(path)


@pytest.mark.parametrize("name", ["y" * 300 + ".onnx", "no/such/net.onnx", "folder.onnx"])
def test_names_that_are_no_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.onnx").mkdir()
    assert len(refused(tmp_path / name)) < 400


def test_an_unreadable_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    assert refused(path) == f"{path} cannot be read: Permission denied."
