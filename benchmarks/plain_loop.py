"""Does ``ngb bench`` report what a plain loop sees? Prints the ratio per model and compiler.

Plain loop, ``ngb bench`` (default profile), plain loop, three times: the ratio of the bench's
throughput to the mean of the loops on either side. A tool that disturbs what it measures
shows below 1; the median over the three should lie within 5 % of 1.

ONNX Runtime runs twice with the same options: neither may be declared faster. The ratio of
OpenVINO to ONNX Runtime should repeat within 1 % from run to run.

    python benchmarks/plain_loop.py [--profile quick] [--times 1] [--model timm:resnet18 ...]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ngraphbench.api import Run
from ngraphbench.summary import compare, launch_of, prior_of, verdict

MODELS = ["timm:resnet18", "timm:efficientnet_b0", "timm:deit_tiny_patch16_224"]
COMPILERS = ["eager", "onnxruntime", "openvino"]
TWICE = "onnxruntime"

SETUP = """
import sys
import numpy as np
which, model, onnx, threads = sys.argv[1:5]
threads = int(threads)
x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
if which == "eager":
    import timm, torch
    torch.set_num_threads(threads)
    mode = torch.inference_mode()  # held: the mode ends with this object
    mode.__enter__()
    net, image = timm.create_model(model).eval(), torch.from_numpy(x)
    call = lambda: net(image)
elif which == "onnxruntime":
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x}
    call = lambda: session.run(None, feed)
else:
    import openvino as ov
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = ov.Core().compile_model(onnx, "CPU", settings).create_infer_request()
    request.set_input_tensor(ov.Tensor(x))
    call = request.infer
"""
"""Defines ``call`` as a person would write it, without this package."""

LOOP = (
    SETUP
    + """
import json, time
seconds = float(sys.argv[5])
for _ in range(20):
    call()
count, started = 0, time.perf_counter()
while time.perf_counter() - started < seconds:
    call()
    count += 1
print(json.dumps(count / (time.perf_counter() - started)))
"""
)


def plain_loop(compiler: str, model: str, onnx: Path, *, threads: int, seconds: float) -> float:
    """Return the throughput per second of a plain loop in its own process."""
    name = model.partition(":")[2]
    words = [sys.executable, "-c", LOOP, compiler, name, str(onnx), str(threads), str(seconds)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def bench(models: list[str], profile: str, out: Path) -> dict[tuple[str, str], float]:
    """Return the throughput per second that ``ngb bench`` reports, by model and compiler."""
    words = [sys.executable, "-m", "ngraphbench", "bench", *models, "-b", "1", "--json"]
    for compiler in [*COMPILERS, TWICE]:
        words += ["-c", compiler]
    words += ["--profile", profile, "--out", str(out)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return {
        (record["case"]["model"]["source"], record["label"]): record["summary"]["throughput_per_s"][
            "estimate"
        ]
        for record in json.loads(done.stdout)
    }


def onnx_files(models: list[str], out: Path) -> dict[str, Path]:
    """Return the ONNX file of each model, from the workloads of a run."""
    found: dict[str, Path] = {}
    for folder in (out / "workloads").iterdir():
        about = json.loads((folder / "workload.json").read_text())
        found[about["model"]["source"]] = folder / "b1" / "model.onnx"
    return {model: found[model] for model in models}


def print_pairs(out: Path) -> None:
    """Print A/A (one compiler twice) and OpenVINO over ONNX Runtime, paired, for each model."""
    run = Run.open(out)
    samples = [run.samples(r["measurement"]["samples"]) for r in run.records()]
    launch = launch_of(samples, prior_of(run.sessions()[0]))
    for pair in ((TWICE, f"{TWICE} #2"), (TWICE, "openvino")):
        for model in dict.fromkeys(r["case"]["model"]["label"] for r in run.records()):
            a, b = (
                next(
                    run.samples(r["measurement"]["samples"])
                    for r in run.records()
                    if r["label"] == label and r["case"]["model"]["label"] == model
                )
                for label in pair
            )
            found = compare(a, b, confidence=0.95, launch=launch)
            assert found is not None
            print(
                f"  {model:<24} {pair[1]} / {pair[0]}: {found.estimate:.4f}"
                f" ({found.low:.3f}-{found.high:.3f}), {verdict(found, 0.02)}",
                flush=True,
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="default")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each plain loop")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", action="append")
    options = parser.parse_args()
    models = options.model or MODELS
    pairs = [(model, compiler) for model in models for compiler in COMPILERS]
    ratios: dict[tuple[str, str], list[float]] = {pair: [] for pair in pairs}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        root = Path(folder)
        bench(models, "quick", root / "export")
        files = onnx_files(models, root / "export")

        def loops() -> dict[tuple[str, str], float]:
            return {
                (model, compiler): plain_loop(
                    compiler,
                    model,
                    files[model],
                    threads=options.threads,
                    seconds=options.seconds,
                )
                for model, compiler in pairs
            }

        before = loops()
        for number in range(options.times):
            found = bench(models, options.profile, root / f"bench{number}")
            after = loops()
            for pair in pairs:
                around = (before[pair] + after[pair]) / 2
                ratios[pair].append(found[pair] / around)
                print(
                    f"{pair[0]:<28} {pair[1]:<12} loop {before[pair]:8.2f}/s"
                    f"  bench {found[pair]:8.2f}/s  loop {after[pair]:8.2f}/s"
                    f"  ratio {ratios[pair][-1]:.3f}",
                    flush=True,
                )
            print_pairs(root / f"bench{number}")
            before = after
    print("\nmedian ratio of bench to plain loop (1 = the tool disturbs nothing):")
    for (model, compiler), values in ratios.items():
        print(f"{model:<28} {compiler:<12} {statistics.median(values):.3f}")


if __name__ == "__main__":
    main()
