"""The experiment file: what is accepted, and how well errors point at their cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraphbench.case import Limits
from ngraphbench.errors import SpecError, nearest
from ngraphbench.spec import (
    CompilerSpec,
    Experiment,
    build_experiment,
    load_experiment,
    parse_bytes,
    parse_compiler,
    parse_seconds,
    shape_combinations,
)

FULL = """\
name: archetypes
models:
  - timm:efficientnet_b0
  - {model: timm:deit_tiny_patch16_224, label: DeiT-Ti, checkpoint: deit.safetensors, seed: 3}
  - {model: detector.onnx, inputs: {images: {shape: [batch, 3, 640, 640]}}}
compilers: [eager, onnxruntime, {openvino: {preset: recommended}}, {onnxruntime@1.31.1: {}}]
sweep: {openvino: {num_streams: [1, 2]}}
devices: [local]
batch_sizes: [1, 2, 4]
shapes: {images: [[batch, 3, 320, 320], [batch, 3, 640, 640]]}
precision: fp32
baseline: eager
control: same-graph
interleave: [compiler, batch]
measure: {profile: quick, threads: 2, mode: sync}
limits: {first_call: 60s, compile: 10min, cell: 15min, memory: 8GiB}
environments: current
"""
MINIMAL = "name: x\nmodels: [a.onnx]\ncompilers: [eager]\n"


def load(tmp_path: Path, text: str, *overrides: str) -> Experiment:
    path = tmp_path / "exp.yaml"
    path.write_text(text, encoding="utf-8")
    return load_experiment(path, overrides=overrides)


def error_of(tmp_path: Path, text: str, *overrides: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text, *overrides)
    return caught.value


def test_full_file(tmp_path: Path) -> None:
    experiment = load(tmp_path, FULL)
    assert experiment.models[1].label == "DeiT-Ti"
    assert experiment.models[1].seed == 3
    assert experiment.models[2].inputs["images"].shape == ["batch", 3, 640, 640]
    assert experiment.compilers[2] == CompilerSpec("openvino", "", {"preset": "recommended"})
    assert experiment.compilers[3] == CompilerSpec("onnxruntime", "1.31.1", {})
    assert experiment.limits == Limits(60.0, 600.0, 900.0, 8 * 2**30)
    assert experiment.precision == ["fp32"]
    assert experiment.measure.threads == 2


def test_defaults(tmp_path: Path) -> None:
    experiment = load(tmp_path, MINIMAL)
    assert experiment.batch_sizes == [1, 8]
    assert experiment.devices == ["local"]
    assert experiment.baseline == "eager"
    assert experiment.limits == Limits()
    assert experiment.measure.threads == "auto"
    assert shape_combinations(experiment) == [{}]


def test_dump_is_what_was_written(tmp_path: Path) -> None:
    experiment = load(tmp_path, FULL)
    again = build_experiment(experiment.model_dump(mode="json"))
    assert again.model_dump() == experiment.model_dump()
    assert again.limits == experiment.limits


def test_yaml_is_1_2(tmp_path: Path) -> None:
    text = MINIMAL.replace("[eager]", "[{tvm: {cache: off, mode: yes, fast: true}}]")
    assert load(tmp_path, text).compilers[0].options == {
        "cache": "off",
        "mode": "yes",
        "fast": True,
    }


def test_dates_stay_text(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL.replace("x", "2026-11-30")).name == "2026-11-30"


def test_anchors_and_merges(tmp_path: Path) -> None:
    text = "name: x\nmodels: [a.onnx]\ncompilers: [a: &o {k: true}, b: {<<: *o, z: 0x10}]\n"
    assert [spec.options for spec in load(tmp_path, text).compilers] == [
        {"k": True},
        {"k": True, "z": 16},
    ]


def test_an_anchor_given_anew_is_no_news(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    text = "name: x\nmodels: [a.onnx]\ncompilers: [a: &o {k: 1}, b: &o {k: 2}, c: *o]\n"
    assert [spec.options["k"] for spec in load(tmp_path, text).compilers] == [1, 2, 2]
    assert not recwarn.list


@pytest.mark.parametrize(
    ("change", "line", "key", "words"),
    [
        ("batch_size: [1]", 4, "batch_size", "'batch_sizes'"),
        ("profile: quick", 4, "profile", "'measure.profile'"),
        ("measure: {profile: quik}", 4, "measure.profile", "'quick'"),
        ("measure:\n  profile: quick\n  mode: paced", 6, "measure.mode", "sync, queued"),
        ("measure:\n  rate: 0", 5, "measure.rate", "above 0"),
        ("measure:\n  in_flight: [1, 1]", 5, "measure.in_flight", "1 twice"),
        ("measure:\n  claim: compilers", 5, "measure.claim", "compiler"),
        ("measure:\n  profile: quick\n  claim: compiler", 6, "measure.claim", "3 builds"),
        ("measure:\n  in_flight: [1, 1000]", 5, "measure.in_flight", "up to 256"),
        ("measure:\n  sustained: 3s", 5, "measure.sustained", "at least 10s"),
        ("measure:\n  sustained: soon", 5, "measure.sustained", "a duration"),
        ("measure: {threads: 0}", 4, "measure.threads", "auto"),
        ("measure: {threads: true}", 4, "measure.threads", "auto"),
        ("batch_sizes: [1, 0]", 4, "batch_sizes[1]", "at least 1, not 0"),
        ("batch_sizes: [1, true]", 4, "batch_sizes[1]", "whole number"),
        ("batch_sizes: [1, 2.0]", 4, "batch_sizes[1]", "whole number"),
        ("batch_sizes: [2, 2]", 4, "batch_sizes", "2 twice"),
        ("batch_sizes: []", 4, "batch_sizes", "empty"),
        ("batch_sizes: 8", 4, "batch_sizes", "a list, not 8"),
        ("precision: fp33", 4, "precision", "'fp32'"),
        ("precision: [fp32, fp16, fp32]", 4, "precision", "twice"),
        ("control: same_graph", 4, "control", "'same-graph'"),
        ("interleave: [compiler, batches]", 4, "interleave[1]", "'batch'"),
        ("interleave: [batch]", 4, "interleave", "compiler"),
        ("environments: manged", 4, "environments", "'managed'"),
        ("limits: {memory: 8Gib}", 4, "limits.memory", "GiB"),
        ("limits: {cell: 5 parsecs}", 4, "limits.cell", "ms, s, min, h"),
        ("limits: {cell: 0}", 4, "limits.cell", "above zero"),
        ("limits: {cells: 1}", 4, "limits.cells", "'cell'"),
        ("limits: 3", 4, "limits", "a mapping"),
        ("devices: []", 4, "devices", "empty"),
        ("seed: -1", 4, "seed", "0 to 2^63"),
        ("shapes: {x: [batch, -1]}", 4, "shapes.x[0]", "-1"),
        ("shapes: {x: [[batch, w]]}", 4, "shapes.x[0][1]", "'w'"),
        ("shapes: {x: []}", 4, "shapes.x", "empty"),
        ("shapes: {x: [[1], [1]]}", 4, "shapes", "twice"),
        ("shapes: {x: [[1], [2]], y: [[1], [2], [3]]}", 4, "shapes", "x has 2, y has 3"),
        ("sweep: {eagr: {a: [1]}}", 4, "sweep.eagr", "'eager'"),
        ("sweep: {eager: {a: []}}", 4, "sweep.eager.a", "empty"),
        ("sweep: {eager: {a: 1}}", 4, "sweep.eager.a", "a list"),
        ("sweep: {eager: {a: [[1]]}}", 4, "sweep.eager.a[0]", "single value"),
        ("baseline: 'a b'", 4, "baseline", "not a compiler"),
        ("x: .nan", 4, "x", "finite"),
        ("x: !!binary aGVsbG8=", 4, "x", "tags"),
        ("1: 2", 4, "", "quotes"),
    ],
)
def test_errors_name_line_key_and_choice(
    tmp_path: Path, change: str, line: int, key: str, words: str
) -> None:
    error = error_of(tmp_path, MINIMAL + change + "\n")
    assert (error.line, error.key) == (line, key)
    assert words in str(error)
    assert str(error).startswith(f"{tmp_path / 'exp.yaml'}:{line}: ")


@pytest.mark.parametrize(
    ("compilers", "words"),
    [
        ("[]", "empty"),
        ("[{openvino: {a: [1, 2]}}]", "sweep"),
        ("[{a: {}, b: {}}]", "one NAME"),
        ("[{'a:x=1': {y: 2}}]", "not in its name"),
        ("[{a: [1]}]", "as a mapping"),
        ("['openvino:streams']", "not option=value"),
        ("[3]", "takes NAME"),
        ("[{eager: {n: 1}}]\nsweep: {eager: {n: [1, 2]}}", "keep one"),
    ],
)
def test_compiler_entries_refused(tmp_path: Path, compilers: str, words: str) -> None:
    error = error_of(tmp_path, f"name: x\nmodels: [a.onnx]\ncompilers: {compilers}\n")
    assert words.lower() in str(error).lower()


@pytest.mark.parametrize(
    ("models", "key", "words"),
    [
        ("[]", "models", "empty"),
        ("[{label: a}]", "models[0].model", "missing"),
        ("[a.onnx, {model: b, lable: x}]", "models[1].lable", "'label'"),
        ("[{model: a, inputs: {x: {shap: [1]}}}]", "models[0].inputs.x.shap", "'shape'"),
        ("[{model: a, inputs: {x: {dtype: flaot32}}}]", "models[0].inputs.x.dtype", "'float32'"),
        ("[{model: a, inputs: {x: {generator: int:1}}}]", "models[0].inputs.x.generator", "LO:HI"),
        ("[{model: a, label: l}, {model: b, label: l}]", "models[1].label", "already"),
        ("[{model: a, pretrained: true, checkpoint: c}]", "models[0].checkpoint", "not both"),
        ("[{model: a, pretrained: 1}]", "models[0].pretrained", "true or false"),
        ("[5]", "models[0]", "a mapping"),
    ],
)
def test_model_entries_refused(tmp_path: Path, models: str, key: str, words: str) -> None:
    error = error_of(tmp_path, f"name: x\ncompilers: [eager]\nmodels: {models}\n")
    assert (error.line, error.key) == (3, key)
    assert words in str(error)


def test_all_errors_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "nam: x\nmodels: [a.onnx]\ncompilers: [eager]\nbatch_sizes: [0]\nprecision: fp3\n"
    lines = str(error_of(tmp_path, text)).splitlines()
    assert ["name" in lines[0], "exp.yaml:1" in lines[1]] == [True, True]
    assert "'name'" in lines[1]
    assert [line.split(": ")[0].rpartition(":")[2] for line in lines[2:]] == ["4", "5"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("- a\n", 1, "a list"),
        ("name: x\nname: y\n", 2, "duplicate key"),
        ("name: x\nmeasure: {mode: sync, mode: queued}\n", 2, "duplicate key"),
        ("name: [x\n", 2, "YAML"),
        ("name: x\n\tmodels: y\n", 2, "YAML"),
        ("name: x\n---\nname: y\n", None, "YAML"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    error = error_of(tmp_path, text)
    assert words in str(error)
    assert line is None or error.line == line


def test_aliases_cannot_blow_up(tmp_path: Path) -> None:
    levels = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]\n" for i in range(1, 9))
    assert "more than" in str(error_of(tmp_path, "l0: &l0 [1]\n" + levels))


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        load_experiment(tmp_path / "missing.yaml")
    with pytest.raises(SpecError, match="cannot be read"):
        load_experiment(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    with pytest.raises(SpecError, match="cannot be read"):
        load_experiment(tmp_path / "latin.yaml")


def test_overrides(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        FULL,
        "measure.profile=default",
        "batch_sizes=[16]",
        "models.1.label=off",
        "limits.cell=2min",
        "baseline=",
        "shapes.images=[batch, 3, 8, 8]",
    )
    assert experiment.measure.profile == "default"
    assert experiment.batch_sizes == [16]
    assert experiment.models[1].label == "off"
    assert experiment.limits.cell_s == 120.0
    assert experiment.baseline is None
    assert shape_combinations(experiment) == [{"images": ["batch", 3, 8, 8]}]


def test_override_makes_sections_and_knows_dotted_names(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL, "measure.mode=queued").measure.mode == "queued"
    text = MINIMAL + "shapes: {in.0: [[1]]}\n"
    assert load(tmp_path, text, "shapes.in.0=[[2]]").shapes == {"in.0": [[2]]}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("measure.profile=quik", "--set measure.profile=quik: measure.profile: Cannot be 'quik'"),
        ("measure={profile: quik}", "--set measure={profile: quik}: measure.profile"),
        ("nonsense", "KEY=VALUE"),
        ("batch_sizes=[1", "YAML"),
        ("models.7.label=x", "a list of 3"),
        ("models.0.label=x", "has no 'label'"),
        ("name.first=x", "has no 'first'"),
    ],
)
def test_override_errors(tmp_path: Path, override: str, words: str) -> None:
    assert words in str(error_of(tmp_path, FULL, override))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("eager", CompilerSpec("eager")),
        ("onnxruntime@1.31.1", CompilerSpec("onnxruntime", "1.31.1")),
        ("tvm@/opt/env:trials=64", CompilerSpec("tvm", "/opt/env", {"trials": "64"})),
        ("a:x=1,y=two", CompilerSpec("a", "", {"x": "1", "y": "two"})),
        ("iree:flags=--a=f(x,y),--b=2,level=3", None),
        ("a:x=", CompilerSpec("a", "", {"x": ""})),
    ],
)
def test_parse_compiler(text: str, expected: CompilerSpec | None) -> None:
    found = parse_compiler(text)
    if expected is None:
        expected = CompilerSpec("iree", "", {"flags": "--a=f(x,y),--b=2", "level": "3"})
    assert found == expected


@pytest.mark.parametrize("text", ["", ":", "a:", "a:b", "a:x=1,x=2", "a b", "@1", "a:=1", "a@"])
def test_parse_compiler_refuses(text: str) -> None:
    with pytest.raises(SpecError):
        parse_compiler(text)


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)


@given(
    name=NAMES,
    version=st.just("") | st.from_regex(r"[0-9]{1,2}\.[0-9]{1,2}", fullmatch=True),
    options=st.dictionaries(NAMES, st.from_regex(r"[-a-z0-9=()./]{0,6}", fullmatch=True)),
)
def test_compiler_text_round_trips(name: str, version: str, options: dict[str, str]) -> None:
    spec = CompilerSpec(name, version, {key: value.strip() for key, value in options.items()})
    assert parse_compiler(spec.text) == spec


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("60s", 60.0), ("10min", 600.0), ("1.5h", 5400.0), ("250 ms", 0.25), (3, 3.0), (0.5, 0.5)],
)
def test_parse_seconds(value: object, seconds: float) -> None:
    assert parse_seconds(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["60", "s", "-1s", 0, True, None, [1], "1e400s", "10 m"])
def test_parse_seconds_refuses(value: object) -> None:
    with pytest.raises(ValueError, match="takes"):
        parse_seconds(value)


def test_parse_bytes() -> None:
    assert parse_bytes("8GiB") == 8 * 2**30
    assert parse_bytes("512 MB") == 512 * 10**6
    assert parse_bytes(1024) == 1024
    for value in ("8", "8gib", "0.1B", 0):
        with pytest.raises(ValueError, match="takes"):
            parse_bytes(value)


def test_shapes_go_in_step(tmp_path: Path) -> None:
    text = MINIMAL + "shapes: {x: [[batch, 1], [batch, 2]], y: [batch]}\n"
    assert shape_combinations(load(tmp_path, text)) == [
        {"x": ["batch", 1], "y": ["batch"]},
        {"x": ["batch", 2], "y": ["batch"]},
    ]


def test_experiments_built_in_python() -> None:
    with pytest.raises(SpecError, match=r"bench: precision: Cannot be 'fp3'"):
        build_experiment(
            {"name": "x", "models": ["a"], "compilers": ["b"], "precision": "fp3"}, source="bench"
        )


def test_nearest() -> None:
    assert nearest("zzz", ["a", "b"]) == "Choose from a, b."
    assert nearest("zzz", []) == ""
