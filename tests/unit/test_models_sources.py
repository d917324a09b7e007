from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ngraphbench.case import ModelRef
from ngraphbench.errors import SpecError
from ngraphbench.models.sources import resolve_model


def tiny(scale: float = 1.0) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    weight = numpy_helper.from_array(np.array([scale], np.float32), "k")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "k"], ["y"])], "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.onnx").write_bytes(tiny().SerializeToString())
    (tmp_path / "nets.py").write_text("def mlp(depth=1): ...\n")
    return tmp_path


def refused(text: str, base: Path, **wishes: object) -> SpecError:
    with pytest.raises(SpecError) as caught:
        resolve_model(text, base=base, **wishes)
    return caught.value


def test_an_onnx_file_is_known_by_its_bytes(folder: Path) -> None:
    one = resolve_model("net.onnx", base=folder)
    (folder / "copy.onnx").write_bytes((folder / "net.onnx").read_bytes())
    copied = resolve_model("copy.onnx", base=folder)
    (folder / "net.onnx").write_bytes(tiny(2.0).SerializeToString())
    assert (one.kind, one.label, one.weights) == ("onnx", "net", "file")
    assert one.path == str(folder / "net.onnx")
    assert copied.content == one.content
    assert resolve_model("net.onnx", base=folder).content != one.content


def test_external_data_is_part_of_the_content(folder: Path) -> None:
    model = tiny()
    onnx.save_model(
        model,
        str(folder / "big.onnx"),
        save_as_external_data=True,
        location="big.bin",
        size_threshold=0,
    )
    before = resolve_model("big.onnx", base=folder).content
    data = bytearray((folder / "big.bin").read_bytes())
    data[0] ^= 1
    (folder / "big.bin").write_bytes(data)
    assert resolve_model("big.onnx", base=folder).content != before
    (folder / "big.bin").write_bytes(b"")
    assert refused("big.onnx", folder).reason == "external-data"


def test_external_data_may_be_links_into_the_folder_the_model_links_to(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    onnx.save_model(
        tiny(), str(blobs / "a"), save_as_external_data=True, location="w.bin", size_threshold=0
    )
    (blobs / "w.bin").rename(blobs / "b")
    (snapshot / "net.onnx").symlink_to(blobs / "a")
    (snapshot / "w.bin").symlink_to(blobs / "b")
    assert resolve_model("net.onnx", base=snapshot).kind == "onnx"
    (tmp_path / "elsewhere").write_bytes((blobs / "b").read_bytes())
    (snapshot / "w.bin").unlink()
    (snapshot / "w.bin").symlink_to(tmp_path / "elsewhere")
    assert "link out of" in str(refused("net.onnx", snapshot))


def test_library_models_take_arguments_and_a_seed(folder: Path) -> None:
    one = resolve_model("timm:vit_tiny?img_size=64&global_pool=avg&flag=true", base=folder)
    assert one.args == {"img_size": 64, "global_pool": "avg", "flag": True}
    assert one.label == "vit_tiny?img_size=64&global_pool=avg&flag=true"
    assert (one.kind, one.weights, one.path) == ("timm", "random", "")
    seeded = resolve_model("timm:vit_tiny", base=folder, seed=1)
    assert seeded.content != resolve_model("timm:vit_tiny", base=folder).content
    wished = resolve_model("torchvision:resnet18", base=folder, pretrained=True)
    assert (wished.kind, wished.weights) == ("torchvision", "pretrained")


def test_given_arguments_win_over_those_in_the_text(folder: Path) -> None:
    found = resolve_model("nets.py:mlp?depth=2&width=3", base=folder, args={"depth": 4})
    assert found.args == {"depth": 4, "width": 3}


def test_a_factory_file_is_known_by_its_source(folder: Path) -> None:
    before = resolve_model("nets.py:mlp", base=folder)
    assert (before.kind, before.label, before.path) == ("file", "mlp", str(folder / "nets.py"))
    (folder / "nets.py").write_text("def mlp(depth=2): ...\n")
    assert resolve_model("nets.py:mlp", base=folder).content != before.content


def test_a_package_is_found_below_the_base_without_importing_it(folder: Path) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "pack" / "nets.py").write_text("raise SystemExit('imported')\n")
    found = resolve_model("pack.nets:mlp", base=folder)
    assert (found.kind, found.path, found.label) == ("package", str(folder), "mlp")
    assert "'pack.gone'" in str(refused("pack.gone:mlp", folder))


def test_checkpoint_and_inputs_file_enter_the_content(folder: Path) -> None:
    plain = resolve_model("timm:x", base=folder)
    (folder / "w.pt").write_bytes(b"1")
    one = resolve_model("timm:x", base=folder, checkpoint="w.pt")
    (folder / "w.pt").write_bytes(b"2")
    two = resolve_model("timm:x", base=folder, checkpoint="w.pt", inputs_file="w.pt")
    assert one.weights == "checkpoint"
    assert Path(one.checkpoint) == folder / "w.pt"
    assert len({plain.content, one.content, two.content}) == 3


def test_a_reference_survives_json(folder: Path) -> None:
    found = resolve_model("net.onnx", base=folder, inputs={"x": {"shape": [1, 2]}}, label="N")
    assert ModelRef.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("resnet18", "timm:resnet18"),
        ("tim:resnet18", "Did you mean timm:resnet18"),
        ("nets.py", "nets.py:factory"),
        ("timm:", "timm:NAME"),
        ("net.onx", "forms are"),
        ("nts.py:mlp", "nets.py"),
        ("nat.onnx", "net.onnx"),
        ("gone/net.onnx", "folder"),
        ("timm:x?depth", "key=value"),
    ],
)
def test_a_wrong_name_is_told_what_would_be_right(folder: Path, text: str, hint: str) -> None:
    assert hint in str(refused(text, folder))


def test_wishes_that_cannot_be_granted_are_refused(folder: Path) -> None:
    (folder / "w.pt").write_bytes(b"1")
    assert refused("net.onnx", folder, pretrained=True).reason == "weights"
    assert refused("nets.py:mlp", folder, pretrained=True).reason == "weights"
    assert refused("timm:x", folder, pretrained=True, checkpoint="w.pt").reason == "weights"
    assert "w.pt" in str(refused("timm:x", folder, checkpoint="v.pt"))
