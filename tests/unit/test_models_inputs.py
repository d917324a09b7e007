from __future__ import annotations

from typing import Any

import pytest

from ngraphbench.errors import SpecError, Unsupported
from ngraphbench.models.inputs import Declared, merge_overrides, parse_input_option, plan_inputs


def image(*shape: int | str, strict: bool = True) -> Declared:
    return Declared("x", "float32", shape, strict=strict)


@pytest.mark.parametrize(
    ("text", "name", "override"),
    [
        ("x=1x3x320x320", "x", {"shape": [1, 3, 320, 320]}),
        ("x=batchx3:float16", "x", {"shape": ["batch", 3], "dtype": "float16"}),
        ("x=float32:0..1", "x", {"dtype": "float32", "generator": "uniform:0:1"}),
        ("ids=1x8:int64:0..9", "ids",
         {"shape": [1, 8], "dtype": "int64", "generator": "int:0:9"}),
        ("x=-1.5..2", "x", {"generator": "range:-1.5:2"}),
        ("a=b:0=2x3", "a=b:0", {"shape": [2, 3]}),
        ("flag=scalar:bool", "flag", {"shape": [], "dtype": "bool"}),
        ("x=normal", "x", {"generator": "normal"}),
    ],
)  # fmt: skip
def test_an_input_option_is_split_from_the_right(
    text: str, name: str, override: dict[str, Any]
) -> None:
    assert parse_input_option(text) == (name, override)


@pytest.mark.parametrize("text", ["x", "=1x3", "x=", "x=1x3:2x3", "x=9..0", "x=1x-3", "x=a..b"])
def test_an_input_option_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="NAME=SHAPE"):
        parse_input_option(text)


def test_a_mistyped_dtype_is_told_from_a_shape() -> None:
    with pytest.raises(SpecError, match=r"'int65' is a second shape, and no dtype .*int64"):
        parse_input_option("ids=batchx16:int65")


def test_a_symbol_on_axis_0_is_the_batch() -> None:
    plan = plan_inputs([image("N", 3, 8, 8)], {})
    (spec,) = plan.bound(5)
    assert spec.shape == (5, 3, 8, 8)
    assert plan.fixed_batch is None


def test_a_fixed_batch_refuses_others() -> None:
    plan = plan_inputs([image(2, 3)], {})
    assert plan.bound(2)[0].shape == (2, 3)
    with pytest.raises(Unsupported, match="fixed to batch 2") as caught:
        plan.bound(4)
    assert caught.value.reason == "batch-fixed"


def test_no_batch_at_all_leaves_batch_1_with_a_note() -> None:
    plan = plan_inputs([Declared("s", "float32", ())], {})
    assert plan.bound(1)[0].shape == ()
    assert plan.notes[0].startswith("no-batch")
    with pytest.raises(Unsupported):
        plan.bound(2)


def test_a_symbol_named_batch_wins_over_axis_0() -> None:
    plan = plan_inputs([Declared("x", "float32", ("seq", "batch", 4))], {})
    assert plan.batch_axes() == {"x": 1}
    assert plan.bound(3)[0].shape == (64, 3, 4)


def test_other_inputs_with_a_free_axis_0_follow_the_batch() -> None:
    declared = [image("batch", 4), Declared("m", "bool", ("", 4)), Declared("r", "int64", ("k", 5))]
    plan = plan_inputs(declared, {})
    assert [spec.shape[0] for spec in plan.bound(3)] == [3, 3, 3]
    assert any("axis 0 of r" in note for note in plan.notes)


def test_a_shared_symbol_has_one_size() -> None:
    declared = [Declared("ids", "int64", (1, "seq")), Declared("d", "float32", (1, "seq", "seq"))]
    plan = plan_inputs(declared, {"ids": {"shape": [1, 7]}})
    assert [spec.shape for spec in plan.bound(1)] == [(1, 7), (1, 7, 7)]
    assert not plan.guesses


def test_unknown_sizes_are_guessed_and_said_so() -> None:
    plan = plan_inputs([image("N", "c", "h", "w")], {})
    assert plan.bound(1)[0].shape == (1, 3, 224, 224)
    assert plan.bound(1, attempt=1)[0].shape == (1, 3, 256, 256)
    assert plan.attempts > 1
    assert any(note.startswith("dims-guessed") for note in plan.notes)


def test_the_shape_of_one_item_leaves_the_batch_free() -> None:
    plan = plan_inputs([image("N", 3, "h", "w")], {"x": {"shape": [1, 3, 320, 320]}})
    assert plan.bound(8)[0].shape == (8, 3, 320, 320)


def test_a_given_batch_other_than_1_is_the_only_one() -> None:
    assert plan_inputs([image("N", 3)], {"x": {"shape": [4, 3]}}).fixed_batch == 4


def test_a_shape_for_an_input_without_one() -> None:
    declared = [Declared("x", "float32", None)]
    with pytest.raises(Unsupported, match="--input x=") as caught:
        plan_inputs(declared, {})
    assert caught.value.reason == "input-shape"
    assert plan_inputs(declared, {"x": {"shape": ["B", 4]}}).bound(2)[0].shape == (2, 4)


def test_soft_dims_may_be_replaced_and_strict_ones_not() -> None:
    override = {"x": {"shape": [1, 3, 320, 320]}}
    assert plan_inputs([image("batch", 3, 224, 224, strict=False)], override).bound(2)[0].shape == (
        2,
        3,
        320,
        320,
    )
    with pytest.raises(Unsupported, match="fixed to"):
        plan_inputs([image("batch", 3, 224, 224)], override)


@pytest.mark.parametrize(
    "override",
    [{"y": {}}, {"x": {"shape": [1]}}, {"x": {"dtype": "int64"}}, {"x": {"dtype": "float99"}}],
)
def test_overrides_that_do_not_fit_are_refused(override: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        plan_inputs([image("N", 3)], override)


def test_a_range_becomes_what_the_dtype_needs() -> None:
    declared = [image("N", 3), Declared("i", "int64", ("N",), generator="int:0:16")]
    overrides = {"x": {"generator": "range:0:1"}, "i": {"generator": "range:0:4"}}
    assert [s.generator for s in plan_inputs(declared, overrides).specs] == [
        "uniform:0:1",
        "int:0:4",
    ]
    assert plan_inputs(declared, {}).specs[1].generator == "int:0:16"


def test_shapes_of_a_case_win_over_those_of_the_model() -> None:
    merged = merge_overrides({"x": {"shape": [1, 2], "dtype": "float16"}}, {"x": ["batch", 9]})
    assert merged == {"x": {"shape": ["batch", 9], "dtype": "float16"}}


def test_a_dim_written_as_a_sum_of_others_is_their_sum() -> None:
    declared = [
        Declared("ids", "int64", ("batch", "seq")),
        Declared("mask", "int64", ("batch", "past + seq")),
        Declared("keys", "float32", ("batch * 2", "past", 4)),
    ]
    plan = plan_inputs(declared, {})
    assert [spec.shape for spec in plan.bound(3)] == [(3, 64), (3, 128), (6, 64, 4)]
    # The other sizes follow one that is given.
    plan = plan_inputs(declared, {"ids": {"shape": ["batch", 5]}})
    assert [spec.shape for spec in plan.bound(2)] == [(2, 5), (2, 69), (4, 64, 4)]


@pytest.mark.parametrize("name", ["audio_lens", "audioLength", "n.len"])
def test_lengths_are_those_of_the_whole_input(name: str) -> None:
    declared = [Declared("audio", "float32", ("batch", "n")), Declared(name, "int64", ("batch",))]
    assert plan_inputs(declared, {}).bound(2, attempt=1)[1].generator == "const:256"
    given = plan_inputs(declared, {"audio": {"shape": ["batch", 900]}})
    assert given.bound(2)[1].generator == "const:900"
    own = plan_inputs(declared, {name: {"generator": "range:1:9"}})
    assert own.bound(2)[1].generator == "int:1:9"


def test_what_is_no_length_stays_as_it_is() -> None:
    declared = [
        Declared("image", "float32", ("batch", 3, "h", "w")),
        Declared("lens", "int64", ("batch",)),
        Declared("silent", "int64", ("batch",)),
        Declared("image_len", "int64", ("batch", "h")),
    ]
    # Of height and width none is the length; lenses that are silent have none either.
    assert {spec.generator for spec in plan_inputs(declared, {}).bound(1)[1:]} == {"int:0:2"}


def test_a_sum_of_unknown_dims_is_a_dim_of_its_own() -> None:
    plan = plan_inputs([Declared("x", "float32", ("N", "a + b"))], {})
    assert plan.bound(2)[0].shape == (2, 64)
