from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ngraphbench.analysis.published import read_figures, unpaired_orders
from ngraphbench.cli.app import run
from ngraphbench.errors import SpecError

TABLE = """model,batch,baseline,compiled,note
EfficientNet-B0,8,63,249,a
DeiT-Ti,8,70,167,b
ResNet-18,8,50,140,c
EfficientNet-B0,1,40,90,d
"""


def test_swaps_come_first_and_are_unpaired() -> None:
    orders = unpaired_orders(read_figures(TABLE, name="t.csv"))
    assert [order.swapped for order in orders] == [True, False, False]
    assert {order.verdict for order in orders} == {"unpaired"}
    first = orders[0]
    assert {first.model_a, first.model_b} == {"EfficientNet-B0", "DeiT-Ti"}
    assert first.baseline_ratio == pytest.approx(63 / 70)
    assert first.compiled_ratio == pytest.approx(249 / 167)


def test_rows_of_other_compilers_devices_and_batches_are_not_paired() -> None:
    text = "model,batch,baseline,compiled,compiler,device\n"
    text += "A,1,1,1,tvm,pi\nB,1,2,3,tvm,orin\nC,1,2,3,ort,pi\nD,2,2,3,tvm,pi\n"
    assert unpaired_orders(read_figures(text, name="t.csv")) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model,batch,basline,compiled\nA,1,2,3\n", "no column 'baseline'.*basline"),
        ("", "no column 'model'"),
        ("model,batch,baseline,compiled\n", "no rows"),
        ("model,batch,baseline,compiled\nA,1,x,3\n", "t.csv:2: .*numbers"),
        ("model,batch,baseline,compiled\nA,1,2\n", "t.csv:2: .*numbers"),
        ("model,batch,baseline,compiled\nA,1,2,0\n", "above 0"),
        ("model,batch,baseline,compiled\nA,1,2,nan\n", "above 0"),
        ("model,batch,baseline,compiled\n,1,2,3\n", "no model"),
        ("model,batch,baseline,compiled\nA,1,2,3\nA,1,2,4\n", "twice"),
        ("model,batch,baseline,compiled\nA,1,2,3\n" + "B" * 200_000 + ",1,2,3\n", "t.csv:3: field"),
        ("B" * 200_000, "t.csv:1: field"),
        ("model,batch,baseline,compiled\nA\0,1,2,3\n", "t.csv:2: "),
        ('model,batch,baseline,compiled\n"A,1,2,3\nB",1,2,3\n', "t.csv:3: the model's name holds"),
    ],
)
def test_what_cannot_be_understood_says_where(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_figures(text, name="t.csv")
    assert re.search(words, str(caught.value), re.DOTALL)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.csv"
    path.write_text("\ufeff" + TABLE, encoding="utf-8")
    assert run(["reversals", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "would swap places under compiled at batch 8" in text
    assert "1 of 3 pairs would swap places. None of it is paired" in text
    assert run(["reversals", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "unpaired"


def test_a_missing_table_is_the_users_to_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reversals", "nowhere.csv"]) == 2
    assert "cannot be read" in capsys.readouterr().err
