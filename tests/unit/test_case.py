"""What makes a case the same case."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ngraphbench.case import Case, CompilerRef, ModelRef
from ngraphbench.types import Device, OptionValue

VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=4))


@given(options=st.dictionaries(st.text(max_size=4), VALUES, max_size=5), data=st.data())
def test_case_id_does_not_depend_on_key_order(
    options: dict[str, OptionValue], data: st.DataObject
) -> None:
    keys = data.draw(st.permutations(list(options)))
    shuffled = {key: options[key] for key in keys}

    def case(chosen: dict[str, OptionValue], label: str) -> Case:
        model = ModelRef("a.onnx", label, "onnx", "c", inputs={"x": chosen})
        return Case(model, CompilerRef("t", "m:T", chosen), Device(), 1, shapes={**chosen})

    assert case(options, "one").case_id == case(shuffled, "two").case_id
    assert Case.from_json(case(options, "one").to_json()) == case(options, "one")
