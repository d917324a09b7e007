"""Every ONNX case ends in input specs or in one clear error, never in a traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ngraphbench.errors import NGraphBenchError, SpecError, Unsupported
from ngraphbench.models.graphinputs import plan_graph_inputs
from ngraphbench.models.inputs import InputPlan
from ngraphbench.models.onnxfile import check_format, open_onnx
from ngraphbench.models.sources import resolve_model

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cases.onnx_cases import write_cases

REFUSED = {
    "string_input": "dtype",
    "string_identity": "dtype",
    "input_without_shape": "input-shape",
    "ir_too_new": "model-format",
    "opset_too_new": "model-format",
    "external_traversal": "external-data",
    "external_absolute": "external-data",
    "external_missing": "external-data",
    "corrupt_truncated": "not-onnx",
    "corrupt_empty": "empty",
    "corrupt_text": "not-onnx",
    "corrupt_no_graph": "not-onnx",
    "lfs_pointer": "not-onnx",
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    return write_cases(tmp_path_factory.mktemp("cases"))


def plan(file: str) -> InputPlan:
    reference = resolve_model(file, base=Path("/"))
    opened = open_onnx(Path(reference.path))
    check_format(opened.model)
    return plan_graph_inputs(opened.model, {})


def test_every_case_ends_in_specs_or_one_clear_error(cases: dict[str, dict]) -> None:
    refused = {}
    for name, case in cases.items():
        try:
            found = plan(case["file"])
        except NGraphBenchError as error:
            assert isinstance(error, (SpecError, Unsupported)), name
            assert "\n" not in str(error), name
            refused[name] = error.reason
            continue
        assert {spec.name for spec in found.specs} == set(case["feed"]), name
        for spec in found.bound(found.fixed_batch or 2):
            assert all(isinstance(dim, int) and dim > 0 for dim in spec.shape), name
    assert refused == REFUSED


def test_inputs_have_the_declared_dtype_and_rank(cases: dict[str, dict]) -> None:
    for name, case in cases.items():
        if name in REFUSED:
            continue
        for spec in plan(case["file"]).specs:
            assert spec.dtype == case["feed"][spec.name]["dtype"], name
            assert len(spec.shape) == len(case["feed"][spec.name]["shape"]), name


def test_the_batch_is_found_where_it_is(cases: dict[str, dict]) -> None:
    axes = plan(cases["batch_axis_one"]["file"]).batch_axes()
    assert axes == {"x": 0, "h0": 1}
    assert plan(cases["odd_dims"]["file"]).batch_axes() == {"x": 0}
    assert plan(cases["batch_folded_silently"]["file"]).fixed_batch == 1
    assert plan(cases["shared_symbol_no_batch_out"]["file"]).fixed_batch == 1


def test_a_table_bounds_the_ids_that_index_it(cases: dict[str, dict]) -> None:
    (spec,) = plan(cases["gather_bound"]["file"]).specs
    assert spec.generator == "int:0:16"


def test_weights_among_the_inputs_are_not_fed(cases: dict[str, dict]) -> None:
    assert [s.name for s in plan(cases["weights_as_inputs"]["file"]).specs] == ["x"]
