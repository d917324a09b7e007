"""Each planted fault is caught by the test that is meant to catch it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import bad_outputs
import bad_promises
import pytest
import vendor_at_import
from good_plugins import HasEverything

from ngraphbench.compilers.fake import FakeCompiler
from ngraphbench.plugin import Compiler
from ngraphbench.testing import CompilerContract

pytest_plugins = ("pytester",)

PLANTED = [
    ("test_import_needs_no_vendor", vendor_at_import.ImportsItsVendor),
    ("test_probe_never_raises", bad_promises.ProbeRaises),
    ("test_probe_never_raises", bad_promises.ProbeWithoutHint),
    ("test_options_are_declared", bad_promises.DefaultIsNoChoice),
    ("test_outputs_have_names_shapes_and_dtypes", bad_outputs.WrongNames),
    ("test_outputs_have_names_shapes_and_dtypes", bad_outputs.WrongShapes),
    ("test_outputs_have_names_shapes_and_dtypes", bad_outputs.WrongDtypes),
    ("test_outputs_match_the_reference", bad_outputs.WrongValues),
    ("test_outputs_follow_the_inputs", bad_outputs.ReplaysFirstInput),
    ("test_outputs_outlive_the_next_run", bad_outputs.ReturnsViews),
    ("test_inputs_are_left_alone", bad_outputs.MutatesInputs),
    ("test_inputs_are_copied", bad_outputs.KeepsTheCallersArrays),
    ("test_wrong_inputs_are_refused", bad_outputs.TakesWrongInputs),
    ("test_runs_repeat", bad_outputs.DriftsOverRuns),
    ("test_every_batch_size_is_honoured", bad_outputs.IgnoresBatch),
    ("test_rows_match_batch_one", bad_outputs.LetsRowsDependOnTheBatch),
    ("test_lanes_have_inputs_of_their_own", bad_promises.SharesLanes),
    ("test_lanes_have_inputs_of_their_own", bad_promises.GivesFewLanes),
    ("test_lanes_skip_no_work", bad_promises.SkipsWorkInLanes),
    ("test_weights_beside_the_file_are_read", bad_promises.TrustsNoLinks),
    ("test_foreign_form_is_unsupported", bad_promises.TakesAnyForm),
    ("test_broken_model_fails_with_its_cause", bad_promises.LeaksVendorErrors),
    ("test_close_is_final", bad_outputs.CannotCloseTwice),
    ("test_close_is_final", bad_outputs.RunsAfterClose),
    ("test_programs_share_no_state", bad_outputs.SharesState),
    ("test_compile_finishes_the_program", bad_promises.CompilesInRun),
    ("test_compile_finishes_the_program", bad_promises.FinishesCompilingInRun),
    ("test_no_work_is_skipped", bad_promises.SkipsEverySecondRun),
    ("test_no_work_is_skipped", bad_promises.KeepsResults),
    ("test_threads_may_be_left_to_the_vendor", bad_promises.NeedsAThreadCount),
    ("test_threads_asked_for_are_used", bad_promises.IgnoresThreads),
    ("test_precision_asked_for_is_executed", bad_promises.RunsLowerPrecision),
    ("test_precision_asked_for_is_executed", bad_promises.ClaimsPrecision),
    ("test_no_process_is_left_behind", bad_promises.LeavesAChild),
    ("test_a_loaded_artefact_is_the_program", bad_promises.LoadsAnotherProgram),
    ("test_a_loaded_artefact_is_the_program", bad_promises.KeepsArtefactsInItsProcess),
    ("test_report_survives_json", bad_promises.ReportsNoJson),
]

# Options are resolved before a plugin is asked, so no plugin can plant this fault.
NOT_PLANTED = {"test_unknown_option_is_refused"}


class TestGood(CompilerContract):
    compiler = HasEverything()


def _call(test: str, plugin: Compiler, folder: Path) -> None:
    suite: Any = type("Suite", (CompilerContract,), {"compiler": plugin})()
    method = getattr(suite, test)
    method(**({"tmp_path": folder} if inspect.signature(method).parameters else {}))


@pytest.mark.parametrize(("test", "plugin"), PLANTED, ids=lambda v: getattr(v, "__name__", v))
def test_planted_fault_is_caught(test: str, plugin: type[Compiler], tmp_path: Path) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)) as caught:
        _call(test, plugin(), tmp_path)
    # A mistake in the suite or in the plugin is no catch.
    assert not isinstance(caught.value, (TypeError, AttributeError, NameError)), caught.value
    print(f"{type(caught.value).__name__}: {str(caught.value)[:300]}")


def test_every_check_has_a_planted_fault() -> None:
    checks = {name for name in dir(CompilerContract) if name.startswith("test_")}
    assert checks - NOT_PLANTED == {test for test, _ in PLANTED}


def test_known_gap_must_name_a_test() -> None:
    with pytest.raises(TypeError, match="test_no_such_thing"):
        type("Suite", (CompilerContract,), {"known_gaps": {"test_no_such_thing": "because"}})


def test_known_gap_is_strict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from ngraphbench.compilers.fake import FakeCompiler
        from ngraphbench.testing import CompilerContract

        class TestGap(CompilerContract):
            compiler = FakeCompiler()
            models = ("fake",)
            known_gaps = {
                "test_runs_repeat": "it passes, so this gap is out of date",
                "test_broken_model_fails_with_its_cause": "it never reads the model",
            }
        """
    )
    result = pytester.runpytest_subprocess("-k", "runs_repeat or broken_model")
    result.assert_outcomes(failed=1, xfailed=1)


def test_unavailable_compiler_is_skipped_with_its_hint(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from ngraphbench.compilers.fake import FakeCompiler
        from ngraphbench.testing import CompilerContract
        from ngraphbench.types import Support

        class Absent(FakeCompiler):
            def probe(self, device):
                return Support(ok=False, hint="pip install absent")

        class TestAbsent(CompilerContract):
            compiler = Absent()
        """
    )
    result = pytester.runpytest_subprocess("-rs", "-k", "runs_repeat")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*pip install absent*"])


def test_fake_compiler_is_a_compiler() -> None:
    assert isinstance(FakeCompiler(), Compiler)
