from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from curve_fixture import Times, depth_run
from run_fixture import Run

from ngraphbench.case import ModelRef
from ngraphbench.cli.app import run
from ngraphbench.errors import SpecError
from ngraphbench.profiles import PROFILES
from ngraphbench.spec import build_experiment
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
        ({d: 0.1 + 2.4 * d for d in DEPTHS}, "falls"),
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


def blocks(
    times: Mapping[str, Mapping[str, float | str]],
    *,
    noise: float = 0.002,
    depths: Sequence[int] = (1, 2, 4),
    widths: Sequence[int] = (64,),
    run: Run | None = None,
    **session: object,
) -> Run:
    """Return a run of families of blocks: ms of one block (or a status) by candidate.

    ``run`` gets it as one more session. A block of twice the width takes four times as long.
    """
    run = run or Run(PROFILES["default"], noise=noise, rounds=8)
    session_id = run.session(**session)
    for family, width, depth in itertools.product(times, widths, depths):
        args = {"depth": depth, "width": width, "resolution": 56}
        name = f"{family}{depth}" if width == 64 else f"{family}{depth} of {width}"
        ref = ModelRef(f"block:{family}?depth={depth}", name, "block", name, args=args)
        for text, value in times[family].items():
            if isinstance(value, str):
                run.cell(session_id, ref, text, 1, status=value)
            else:
                run.cell(session_id, ref, text, 1, ms=1.0 + depth * value * (width / 64) ** 2)
    return run.summarise()


def sizes(family: str, sizes: Mapping[str, int]) -> Mapping[str, int]:
    each = {"vit": 2_000_000, "basic": 1_000_000, "mobilevit": 1_000_000}[family]
    each *= (sizes["width"] // 64) ** 2
    return {
        "flops": each * sizes["depth"],
        "parameters": 1000 * sizes["depth"],
        "block_flops": each,
        "block_parameters": 1000,
    }


MIXED = {
    "basic": {"eager": 8.0, "openvino": 1.0},
    "vit": {"eager": 8.0, "openvino": 4.0},
    "mobilevit": {"eager": 8.0, "openvino": 6.0},
}


def test_which_block_to_build_with() -> None:
    found = develop(*blocks(MIXED).parts, count=sizes)
    assert [(one.title, one.standing) for one in found.materials] == [
        ("block:basic", "best"),
        ("block:vit", "behind"),
        ("block:mobilevit", "behind"),
    ]
    best = found.materials[0].gflops_per_s
    assert best.estimate == pytest.approx(1.0, rel=0.05)
    ratio = found.materials[1].versus_best
    assert ratio is not None and ratio.low < 0.5 < ratio.high
    assert "build with block:basic under openvino" in found.decision
    assert found.refinement is None
    json.dumps(found.to_json(), allow_nan=False)


def test_what_next_yaml_adds_unsettles_nothing() -> None:
    before = develop(*blocks(MIXED).parts, count=sizes)
    more = blocks({"basic": MIXED["basic"]}, depths=(2, 3), name="s1", run=blocks(MIXED))
    found = develop(*more.parts, count=sizes)
    assert found.materials == before.materials
    assert found.hybrids == before.hybrids
    assert [one.mechanism for one in found.findings] == [one.mechanism for one in before.findings]
    assert {(one.title, one.depth) for one in found.points} == {
        *((one.title, one.depth) for one in before.points),
        ("block:basic", 3),
    }
    # All of it anew is the newer of equals, which counts unless it cannot be trusted.
    other = {**MIXED, "vit": {"eager": 8.0, "openvino": 0.1}}
    again = develop(*blocks(other, name="s1", run=blocks(MIXED)).parts, count=sizes)
    assert again.materials[0].title == "block:vit"
    flags = [{"flag": "untrusted", "detail": "A/A"}]
    doubted = blocks(other, name="s1", flags=flags, run=blocks(MIXED))
    assert develop(*doubted.parts, count=sizes).materials == before.materials


@pytest.mark.parametrize("vit", [2.0, 2.02])
def test_what_cannot_be_told_apart_is_not_built_with(vit: float) -> None:
    times = {**MIXED, "vit": {"eager": 8.0, "openvino": vit}}
    found = develop(*blocks(times, noise=0.03).parts, count=sizes)
    assert {one.title for one in found.materials if one.standing == "level"} == {
        *("block:basic", "block:vit")
    }
    assert "it is open which block" in found.decision
    assert "build with" not in found.decision
    assert found.refinement is not None
    asked = found.refinement.experiment
    assert asked["measure"]["profile"] == "thorough"
    assert {entry["args"]["depth"] for entry in asked["models"]} == {1, 2, 4}
    build_experiment(asked)


def test_capacity_against_throughput() -> None:
    found = develop(*blocks(MIXED).parts, count=sizes)
    front = {(one.title, one.depth) for one in found.points if one.flops_front}
    # basic at depth 2 is faster than vit at depth 1, and computes as much.
    assert front == {("block:basic", 1), ("block:basic", 2), ("block:basic", 4), ("block:vit", 4)}
    assert {one.title for one in found.points if one.parameters_front} == {"block:basic"}
    assert {one.label for one in found.points} == {"openvino"}


def test_hybrids_beside_simple_blocks() -> None:
    found = develop(*blocks(MIXED).parts, count=sizes)
    assert {(one.simple, one.verdict) for one in found.hybrids} == {
        ("block:basic", "less"),
        ("block:vit", "less"),
    }
    noisy = {**MIXED, "mobilevit": {"eager": 8.0, "openvino": 4.1}}
    found = develop(*blocks(noisy, noise=0.1).parts, count=sizes)
    assert {one.verdict for one in found.hybrids if one.simple == "block:vit"} == {"unresolved"}
    flags = [{"flag": "untrusted", "detail": "A/A"}]
    untrusted = develop(*blocks(MIXED, flags=flags).parts, count=sizes)
    assert not untrusted.hybrids
    assert {one.standing for one in untrusted.materials} == {"level", "open"}


def test_what_failed_or_was_wrong_is_nothing_to_build_with() -> None:
    times = {
        "basic": {"eager": 8.0, "openvino": "wrong"},
        "vit": {"eager": 8.0, "openvino": "timeout"},
    }
    found = develop(*blocks(times).parts, count=sizes)
    assert not found.materials and not found.points
    assert "Nothing can be decided" in found.decision
    assert found.refinement is not None
    assert {entry["label"] for entry in found.refinement.experiment["models"]} == {
        *("vit1", "vit2", "vit4")
    }


def test_without_a_baseline_blocks_still_have_their_price() -> None:
    times = {name: {**by, "eager": "failed"} for name, by in MIXED.items()}
    found = develop(*blocks(times).parts, count=sizes)
    assert found.materials[0].standing == "best"
    assert not found.hybrids
    assert {one.mechanism for one in found.findings} <= {"unresolved"}


def test_depths_on_either_side_of_the_limit_are_next() -> None:
    found = develop(*blocks({"basic": MIXED["basic"]}).parts, limit_ms=4.0, count=sizes)
    assert found.refinement is not None
    models = found.refinement.experiment["models"]
    assert {entry["args"]["depth"] for entry in models} == {2, 3}
    assert build_experiment(found.refinement.experiment)


def test_each_width_has_a_line_of_its_own() -> None:
    found = develop(*blocks(MIXED, widths=(64, 128)).parts, limit_ms=9.5, count=sizes)
    betas = {one.fit.title: one.fit.beta_ms for one in found.findings}
    assert len(betas) == 6
    for width, truth in ((64, 1.0), (128, 4.0)):
        beta = betas[f"block:basic?resolution=56&width={width}"]
        assert beta is not None and 0.9 * truth < beta.low < beta.high < 1.1 * truth
    # Twice the width computes four times as much in four times the time.
    level = {one.title for one in found.materials if one.standing == "level"}
    assert level == {"block:basic?width=64", "block:basic?width=128"}
    # A hybrid is set beside simple blocks of its own width alone.
    assert {(one.hybrid, one.simple) for one in found.hybrids} == {
        (f"block:mobilevit?width={width}", f"block:{simple}?width={width}")
        for width, simple in itertools.product((64, 128), ("basic", "vit"))
    }
    deepest = {(one.title, one.label): one.depth for one in found.viable}
    assert deepest["block:basic?width=64", "openvino"] == 4
    assert deepest["block:basic?width=128", "openvino"] == 2
    assert ("block:basic?width=128", "eager") not in deepest
    assert {(one.title, one.depth) for one in found.points} >= {
        *(("block:basic?width=64", 4), ("block:basic?width=128", 1))
    }
    assert found.refinement is not None
    asked = [entry["args"] for entry in found.refinement.experiment["models"]]
    assert {args["width"] for args in asked} == {64, 128}


def test_models_of_a_study() -> None:
    assert models_of(["vit"], [1, 2], widths=[64, 32], resolution=56)[:3] == [
        "block:vit?depth=1&width=32&resolution=56",
        "block:vit?depth=2&width=32&resolution=56",
        "block:vit?depth=1&width=64&resolution=56",
    ]
    assert models_of(["vit"], [2, 1], widths=[64], resolution=56) == [
        "block:vit?depth=1&width=64&resolution=56",
        "block:vit?depth=2&width=64&resolution=56",
    ]
    with pytest.raises(SpecError, match="two depths"):
        models_of(["vit"], [2, 2], widths=[64], resolution=56)
    with pytest.raises(SpecError, match="no family"):
        models_of(["vitt"], [1, 2], widths=[64], resolution=56)


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
    assert run(["develop", "--width", "64,wide", "--block", "vit"]) == 2
    assert "'64,wide' is not a list of widths" in capsys.readouterr().err
