from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from curve_fixture import Times, depth_run

from ngraphbench.cli.app import run
from ngraphbench.errors import SpecError
from ngraphbench.store.samples import append_samples
from ngraphbench.studies.develop import Development, develop, models_of

DEPTHS = (1, 2, 4, 8)
EAGER = {depth: 2.0 + 4.0 * depth for depth in DEPTHS}


def count(family: str, sizes: Mapping[str, int]) -> Mapping[str, int]:
    return {"flops": 1000 * sizes["depth"], "parameters": 10 * sizes["depth"]}


def study(times: Times, *, limit_ms: float | None = None) -> Development:
    return develop(*depth_run(times, rounds=8).parts, limit_ms=limit_ms, count=count)


@pytest.mark.parametrize(
    ("times", "mechanism"),
    [
        ({d: 2.0 + 1.0 * d for d in DEPTHS}, "overhead"),
        ({1: 3.0, 2: 4.0, 4: 6.0, 8: 7.0}, "repetition"),
        ({1: 3.0, 2: 4.0, 4: 6.0, 8: 14.0}, "dearer"),
        ({d: 1.0 + 2.0 * d for d in DEPTHS}, "none"),
        ({d: 0.1 + 2.4 * d for d in DEPTHS}, "none"),
    ],
)
def test_what_depth_does_to_a_speedup(times: dict[int, float], mechanism: str) -> None:
    (finding,) = study({"eager": EAGER, "openvino": times}).findings
    assert finding.mechanism == mechanism
    assert "at depth 1" in finding.sentence
    assert "at depth 8" in finding.sentence


def test_two_depths_alone_leave_the_mechanism_to_the_trend() -> None:
    (finding,) = study({"eager": {1: 6.0, 2: 10.0}, "openvino": {1: 3.0, 2: 4.0}}).findings
    assert finding.mechanism == "overhead"


def test_the_deepest_that_surely_fits_is_viable() -> None:
    times = {d: 2.0 + 1.0 * d for d in DEPTHS}
    found = study({"eager": EAGER, "openvino": times}, limit_ms=11.5)
    assert {(one.label, one.depth) for one in found.viable} == {("openvino", 8), ("eager", 2)}
    (chosen,) = found.chosen
    assert (chosen.label, chosen.depth, chosen.flops) == ("openvino", 8, 8000)
    assert "openvino" in found.decision
    # Its interval reaches above this: too close to be sure.
    assert study({"eager": EAGER, "openvino": times}, limit_ms=9.9).chosen[0].depth == 4


def test_nothing_fits() -> None:
    found = study({"eager": EAGER, "openvino": EAGER}, limit_ms=0.1)
    assert found.decision == "Nothing surely stays within 0.1 ms."


def test_what_failed_is_not_viable() -> None:
    found = study(
        {"eager": EAGER, "openvino": {**dict.fromkeys(DEPTHS, 1.0), 8: "wrong"}}, limit_ms=5.0
    )
    assert {(one.label, one.depth) for one in found.viable} == {("openvino", 4)}


def test_models_of_a_study() -> None:
    assert models_of(["vit"], [2, 1], width=64, resolution=56) == [
        "block:vit?depth=1&width=64&resolution=56",
        "block:vit?depth=2&width=64&resolution=56",
    ]
    with pytest.raises(SpecError, match="two depths"):
        models_of(["vit"], [2, 2], width=64, resolution=56)
    with pytest.raises(SpecError, match="no family"):
        models_of(["vitt"], [1, 2], width=64, resolution=56)


def test_on_a_stored_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("timm")
    made = depth_run({"eager": EAGER, "openvino": {d: 2.0 + 1.0 * d for d in DEPTHS}})
    lines = [json.dumps(record) for record in [*made.records, *made.sessions]]
    (tmp_path / "journal.jsonl").write_text("\n".join(lines) + "\n")
    for path, samples in made.samples.items():
        rows = [
            {**{k: v[i] for k, v in samples.items()}, "mode": "sync", "sub_ns": [1.0]}
            for i in range(len(samples["call_ns"]))
        ]
        append_samples(tmp_path / path, rows)
    assert run(["develop", "--of", str(tmp_path), "--limit-ms", "11.5"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "The most computation within 11.5 ms: block:vit under openvino" in text
    assert "an overhead is spread over more blocks" in text
    assert run(["develop", "--of", str(tmp_path), "--limit-ms", "11.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["mechanism"] == "overhead"
    assert run(["develop", "--depth", "3", "--block", "vit"]) == 2
