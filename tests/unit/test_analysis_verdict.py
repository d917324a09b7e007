from __future__ import annotations

from dataclasses import replace

import pytest
from run_fixture import Run, full_run, model

from ngraphbench.analysis import verdict as verdict_module
from ngraphbench.analysis.tables import Interval
from ngraphbench.analysis.topset import verdict_confidence
from ngraphbench.analysis.verdict import Verdict, headline, verdicts
from ngraphbench.profiles import PROFILES


def one_group(times: dict[str, float], *, profile: str = "default", noise: float = 0.004) -> Run:
    run = Run(PROFILES[profile], noise=noise)
    session = run.session()
    for text, ms in times.items():
        run.cell(session, model("m"), text, 8, ms=ms)
    return run.summarise()


def only(run: Run) -> Verdict:
    (verdict,) = verdicts(*run.parts)
    return verdict


def test_a_clear_winner_is_named_with_its_interval() -> None:
    verdict = only(one_group({"eager": 20.0, "onnxruntime": 15.0, "openvino": 10.0}))
    assert verdict.outcome == "faster"
    assert verdict.top == ("openvino",)
    assert verdict.speedup is not None
    assert verdict.speedup.low < 2.0 < verdict.speedup.high
    assert verdict.sentence.startswith("At batch 8, openvino is the fastest, 2.0")
    assert verdict.sentence.endswith(" faster than eager.")


def test_equals_share_the_top() -> None:
    verdict = only(one_group({"eager": 20.0, "onnxruntime": 10.0, "openvino": 10.01}))
    assert set(verdict.top) == {"onnxruntime", "openvino"}
    assert "are indistinguishable and 2.0" in verdict.sentence


def test_a_quick_run_says_single_launch() -> None:
    verdict = only(one_group({"eager": 20.0, "openvino": 10.0}, profile="quick"))
    assert verdict.single_launch
    assert "(single launch)" in verdict.sentence


def test_no_compiler_is_faster() -> None:
    verdict = only(one_group({"eager": 10.0, "openvino": 12.0, "inductor": 13.0}))
    assert verdict.outcome == "not-faster"
    assert verdict.sentence == "At batch 8, no compiler is faster than eager."


def test_a_tie_is_said_to_be_one() -> None:
    verdict = only(one_group({"eager": 10.0, "openvino": 10.0}))
    assert verdict.outcome == "not-faster"
    assert "openvino ties with it" in verdict.sentence


def test_unresolved_within_the_launch_term() -> None:
    verdict = only(one_group({"eager": 10.0, "openvino": 9.8}, profile="quick", noise=0.05))
    assert verdict.outcome == "unresolved"
    assert "unresolved whether openvino (" in verdict.sentence


@pytest.mark.parametrize("status", ["wrong", "failed", "crashed", "oom", "timeout"])
def test_failed_and_wrong_cells_never_win(status: str) -> None:
    run = one_group({"eager": 20.0, "openvino": 18.0})
    run.cell(run.records[0]["session_id"], model("m"), "inductor", 8, ms=1.0, status=status)
    verdict = only(run)
    assert verdict.top == ("openvino",)
    assert "inductor" not in verdict.sentence


def test_unstable_cells_are_not_ranked_and_unverifiable_ones_are_marked() -> None:
    run = one_group({"eager": 20.0})
    session = run.records[0]["session_id"]
    run.cell(session, model("m"), "inductor", 8, ms=1.0, status="unstable")
    run.cell(session, model("m"), "openvino", 8, ms=10.0, status="unverifiable")
    verdict = only(run.summarise())
    assert verdict.top == ("openvino",)
    assert "inductor not ranked: unstable" in verdict.sentence
    assert "openvino's outputs could not be verified" in verdict.sentence


def test_what_is_only_partly_compiled_is_not_ranked() -> None:
    run = one_group({"eager": 20.0, "openvino": 10.0, "inductor": 2.0})
    fallen = next(record for record in run.records if record["label"] == "inductor")
    fallen["flags"] = [{"flag": "partly-compiled", "detail": "60% of its FLOPs ran outside"}]
    verdict = only(run)
    assert verdict.top == ("openvino",)
    assert "inductor not ranked: only partly compiled" in verdict.sentence


def test_without_a_baseline_there_is_no_speedup() -> None:
    run = one_group({"onnxruntime": 15.0, "openvino": 10.0})
    run.cell(run.records[0]["session_id"], model("m"), "eager", 8, status="crashed")
    verdict = only(run)
    assert verdict.outcome == "no-baseline"
    assert verdict.speedup is None
    assert "eager, the baseline, has no result (crashed)" in verdict.sentence


def test_an_onnx_model_is_compared_with_its_own_baseline() -> None:
    run = Run()
    session = run.session()
    for text, ms in {"onnxruntime:level=none": 20.0, "openvino": 10.0}.items():
        run.cell(session, model("net.onnx", "onnx"), text, 1, ms=ms)
    verdict = only(run.summarise())
    assert verdict.baseline == "onnxruntime:level=none"
    assert verdict.outcome == "faster"


def test_an_untrusted_session_ranks_nothing() -> None:
    run = one_group({"eager": 20.0, "openvino": 10.0})
    run.sessions[0]["flags"] = [{"flag": "untrusted", "detail": ""}]
    verdict = only(run)
    assert verdict.outcome == "unresolved"
    assert "A/A" in verdict.sentence


def test_missing_samples_leave_it_unresolved() -> None:
    run = one_group({"eager": 20.0, "openvino": 10.0})
    run.samples.clear()
    assert only(run).outcome == "unresolved"


def test_nothing_ran() -> None:
    run = Run()
    run.cell(run.session(), model("m"), "eager", 1, status="failed")
    verdict = only(run)
    assert verdict.outcome == "none"
    assert "eager failed" in verdict.sentence


def test_a_retried_failure_no_longer_counts() -> None:
    run = Run()
    first = run.session("a")
    run.cell(first, model("m"), "eager", 1, ms=10.0)
    run.cell(first, model("m"), "openvino", 1, status="timeout")
    second = run.session("b", attempt=1)
    run.cell(second, model("m"), "eager", 1, ms=10.0)
    run.cell(second, model("m"), "openvino", 1, ms=5.0)
    outcomes = [verdict.outcome for verdict in verdicts(*run.summarise().parts)]
    assert outcomes == ["alone", "faster"]


def test_a_later_session_may_hold_the_baselines_latest_record() -> None:
    run = one_group({"eager": 20.0, "openvino": 10.0})
    run.records = [record for record in run.records if record["label"] != "eager"]
    verdict = only(run)
    assert verdict.outcome == "faster"
    assert verdict.baseline == "eager"


def test_the_headline_puts_a_reversal_first() -> None:
    from ngraphbench.analysis.reversal import reversals

    parts = full_run().parts
    text = headline(verdicts(*parts), reversals(*parts))
    assert text.startswith("efficientnet_b0 and deit_tiny_patch16_224 swap places under openvino")
    assert "0.90x the throughput of the second in eager, 1.5" in text


def test_headlines_without_a_reversal() -> None:
    assert headline([], []) == "Nothing was measured."
    first = only(one_group({"eager": 20.0, "openvino": 10.0}))
    assert headline([first], []) == first.sentence
    second = replace(first, batch=1, speedup=Interval(1.5, 1.4, 1.6, 0.95))
    assert headline([first, second], []).startswith("openvino is 1.5x to 2.0")
    other = replace(first, model="n", outcome="not-faster", top=("eager",), sentence="At batch 1.")
    assert headline([other, first], []) == f"For m at{first.sentence[2:]} For n at batch 1."


def test_agreeing_batches_make_one_sentence() -> None:
    run = Run()
    session = run.session()
    for batch in (1, 8):
        for text, ms in {"eager": 20.0, "onnxruntime": 10.0, "openvino": 10.0}.items():
            run.cell(session, model("m"), text, batch, ms=ms * batch)
    text = headline(verdicts(*run.summarise().parts), [])
    assert "are indistinguishable and" in text
    assert text.endswith("faster than eager at batches 1 and 8.")


def raced(times: dict[str, float], *dropped: str) -> Run:
    """Return a run of a race in which some left after six rounds."""
    run = one_group(times)
    run.sessions[0]["conditions"] = {"best": True}
    for record in run.records:
        if record["label"] in dropped:
            record["flags"] = [{"flag": "dropped", "detail": "surely slower"}]
            path = record["measurement"]["samples"]
            run.samples[path] = {name: column[:6] for name, column in run.samples[path].items()}
    return run.summarise()


def test_who_left_a_race_is_slower_and_not_unmeasured() -> None:
    times = {"eager": 20.0, "onnxruntime": 11.0, "openvino": 10.0}
    verdict = only(raced(times, "onnxruntime"))
    assert verdict.top == ("openvino",)
    assert "openvino is the fastest" in verdict.sentence
    assert "1 left the race early, surely slower" in verdict.sentence
    assert "not ranked" not in verdict.sentence


def test_who_left_a_race_is_not_called_equal_for_its_few_rounds() -> None:
    # Six rounds of one launch alone would not resolve 3 %.
    times = {"eager": 20.0, "onnxruntime": 10.3, "openvino": 10.0}
    assert only(raced(times)).top == ("openvino",)
    assert only(raced(times, "onnxruntime")).top == ("openvino",)


def test_a_race_has_spent_a_part_of_the_allowed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def resolved(*_: object, confidence: float, **more: object) -> set[str]:
        seen.append(confidence)
        return set()

    monkeypatch.setattr(verdict_module, "resolved_slower", resolved)
    times = {"eager": 20.0, "openvino": 10.0}
    only(one_group(times))
    only(raced(times))
    assert seen == [0.95, verdict_confidence(0.95, raced=True)]
    assert seen[0] < seen[1]
