from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from curve_fixture import batch_run, depth_run
from run_fixture import ESCAPES, HOSTILE, Run, full_run, model

from ngraphbench.case import ModelRef
from ngraphbench.errors import NGraphBenchError, SpecError
from ngraphbench.report.charts import Chart, Mark, amount, linear_axis, log_axis, place_axis
from ngraphbench.report.figures import chart_csv, write_figures
from ngraphbench.report.gallery import charts
from ngraphbench.report.notebook import run_html
from ngraphbench.report.palette import DARK, LIGHT, SERIES_DARK, SERIES_LIGHT, Palette
from ngraphbench.report.scene import Scene

SVG = "{http://www.w3.org/2000/svg}"
LINE = {1: 10.0, 2: 10.5, 4: 20.0, 8: 40.4}


@pytest.fixture(scope="module")
def drawn() -> dict[str, Chart]:
    return charts(Scene(*full_run().parts))


def marks(chart: Chart, panel: int = 0, kind: str = "point") -> list[Mark]:
    return [mark for mark in chart.panels[panel].marks if mark.kind == kind]


def test_every_chart_of_a_run_has_marks(drawn: dict[str, Chart]) -> None:
    assert list(drawn) == [
        *("speedup", "throughput", "order", "scaling", "friction", "costs", "breakeven")
    ]
    assert all(panel.marks for chart in drawn.values() for panel in chart.panels)


def test_speedups_are_as_recorded_and_failures_stand_beside_them(drawn: dict[str, Chart]) -> None:
    run = full_run()
    record = next(r for r in run.records if r["label"] == "openvino" and r["case"]["batch"] == 8)
    known = record["summary"]["vs_baseline"]
    (mark,) = (m for m in marks(drawn["speedup"]) if m.tip.startswith("openvino, batch 8"))
    assert (mark.x, mark.low, mark.high) == (known["estimate"], known["low"], known["high"])
    (failed,) = marks(drawn["speedup"], kind="failed")
    assert failed.note == "crashed signal:SIGSEGV"


def test_what_has_no_result_is_a_cross_at_its_batch_size(drawn: dict[str, Chart]) -> None:
    deit = drawn["throughput"].panels[1]
    crosses = [(m.series, m.x, m.note) for m in deit.marks if m.kind == "failed"]
    assert crosses == [("inductor", 1.0, "wrong"), ("inductor", 8.0, "unsupported")]


def test_the_knee_and_what_is_enough_are_marked() -> None:
    times = {"eager": {b: 10.0 * b for b in LINE}, "openvino": LINE}
    chart = charts(Scene(*batch_run(times).parts))["throughput"]
    (knee,) = (m for m in marks(chart, kind="knee") if m.series == "openvino")
    assert (knee.x, knee.y) == (2.0, pytest.approx(190.5, rel=0.02))
    enough = [m.x for m in marks(chart, kind="enough") if m.series == "openvino"]
    assert enough == [2.0]


def test_friction_is_what_the_times_say() -> None:
    chart = charts(Scene(*batch_run({"eager": LINE, "openvino": LINE}).parts))["friction"]
    found = {m.x: m.y for m in marks(chart) if m.series == "openvino"}
    assert found[2.0] == pytest.approx(math.log2(1.05), abs=1e-6)
    assert found[8.0] == pytest.approx(math.log2(2.02), abs=1e-6)


def test_scaling_stands_beside_throughput_with_the_trap() -> None:
    times = {"eager": {b: 10.0 * b for b in LINE}, "openvino": LINE}
    chart = charts(Scene(*batch_run(times).parts))["scaling"]
    assert [panel.title.split(" ")[0] for panel in chart.panels] == ["net", "RTR", "ASE", "BSR"]
    assert "Never rank on them without T" in chart.lead
    ase = {m.x: m.y for m in marks(chart, 2) if m.series == "openvino"}
    assert ase == pytest.approx({b: 10.0 / ms for b, ms in LINE.items()})


def test_lines_of_a_reversal_cross_and_draw_attention(drawn: dict[str, Chart]) -> None:
    first = drawn["order"].panels[0]
    assert first.alert
    (a, b) = first.lines
    assert {a.style, b.style} == {"alert"}
    assert (a.points[0][1] - b.points[0][1]) * (a.points[1][1] - b.points[1][1]) < 0


def test_depth_has_lines_through_its_times() -> None:
    times = {"eager": {d: 1.0 + 2.0 * d for d in (1, 2, 4)}, "openvino": {1: 2.0, 2: 3.0, 4: 5.0}}
    chart = charts(Scene(*depth_run(times).parts))["depth"]
    line = next(line for line in chart.panels[0].lines if line.series == "eager")
    assert line.points[0][1] == pytest.approx(1.0, rel=0.05)
    assert line.points[1] == pytest.approx((4.0, 9.0), rel=0.05)
    assert {m.x for m in marks(chart)} == {1.0, 2.0, 4.0}


def test_depth_has_a_panel_for_each_shape() -> None:
    times = {"eager": {1: 3.0, 2: 5.0}, "openvino": {1: 2.0, 2: 3.0}}
    run = depth_run(times)
    for record in list(run.records):
        ref, depth = ModelRef(**record["case"]["model"]), record["case"]["model"]["args"]["depth"]
        ms = 10 * times[record["label"]][depth]
        sizes = {"ids": ["batch", 128]}
        run.cell(record["session_id"], ref, record["label"], 1, ms=ms, shapes=sizes)
    panels = charts(Scene(*run.summarise().parts))["depth"].panels
    family = "block:vit?resolution=56&width=64"
    titles = [f"{family}, batch 1", f"{family} [ids batch×128], batch 1"]
    assert [p.title for p in panels] == [t for n in titles for t in (n, f"Speed-up · {n}")]
    for panel, factor in ((panels[0], 1.0), (panels[2], 10.0)):
        assert sorted(m.y for m in panel.marks) == pytest.approx(
            [factor * ms for ms in (2.0, 3.0, 3.0, 5.0)], rel=0.1
        )
        line = next(line for line in panel.lines if line.series == "eager")
        assert line.points[1][1] == pytest.approx(factor * 5.0, rel=0.1)


def test_never_is_told_in_the_break_even_chart() -> None:
    times = {"eager": {1: 10.0, 2: 20.0}, "openvino": {1: 20.0, 2: 40.0}}
    run = batch_run(times)
    for record in run.records:
        record["costs"]["compile_cold_s"] = 3.0
    chart = charts(Scene(*run.parts))["breakeven"]
    assert {m.note for m in marks(chart, kind="failed")} == {"cold, never"}


@pytest.mark.parametrize("low", [1e-6, 0.3, 1.0, 7.0, 4e5])
@pytest.mark.parametrize("ratio", [1.0, 1.4, 3.0, 40.0, 3e3, 1e7])
def test_log_axes_hold_their_values_with_a_few_ticks(low: float, ratio: float) -> None:
    axis = log_axis("x", [low, low * ratio])
    assert axis.low < low
    assert axis.high > low * ratio
    assert 2 <= len(axis.ticks) <= 11
    assert 0.0 < axis.share(low) <= axis.share(low * ratio) < 1.0


@pytest.mark.parametrize("values", [[0.0], [1.0, 1.0], [-2.0, 3.0], [1e-9, 2e-9], [math.nan], []])
def test_linear_axes_hold_their_values_with_a_few_ticks(values: list[float]) -> None:
    axis = linear_axis("x", values)
    assert axis.low < axis.high
    assert 1 <= len(axis.ticks) <= 7
    assert all(0.0 <= axis.share(value) <= 1.0 for value in [*values, math.inf, -math.inf])


def test_odd_values_do_not_break_a_drawing() -> None:
    run = full_run()
    record = run.records[2]["summary"]
    record["vs_baseline"] |= {"high": math.inf, "low": 0.0}
    record["throughput_per_s"] |= {"high": math.inf, "low": 0.0}
    assert all("nan" not in chart.to_svg() for chart in charts(Scene(*run.parts)).values())


def test_batch_axes_thin_their_ticks() -> None:
    assert len(place_axis("batch", range(1, 40)).ticks) <= 9
    assert [amount(x, "x") for x in (0.5, 1.0, 1000.0)] == ["0.5x", "1x", "1,000x"]


def test_figures_are_whole_svg_the_width_of_a_column(
    tmp_path: Path, drawn: dict[str, Chart]
) -> None:
    paths = write_figures(drawn.values(), tmp_path)
    assert {path.suffix for path in paths} == {".svg", ".csv"}
    for path in paths[::2]:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.get("width") in ("252", "516")
        assert not {e.tag for e in root.iter()} & {f"{SVG}script", f"{SVG}image", f"{SVG}img"}
        assert HOSTILE in "".join(root.itertext()) or "speedup" not in path.name
    rows = list(csv.reader(io.StringIO((tmp_path / "speedup.csv").read_text(encoding="utf-8"))))
    assert rows[0] == ["model", "compiler", "speed-up", "batch", "low", "high", "note"]
    assert ["efficientnet_b0", "inductor", "", "batch 8", "", "", "crashed signal:SIGSEGV"] in rows
    assert rows[1][:2] + rows[1][3:4] == ["efficientnet_b0", "openvino", "batch 1"]
    assert len(rows) == 1 + sum(len(panel.marks) for panel in drawn["speedup"].panels)


@pytest.mark.parametrize(("form", "magic"), [("pdf", b"%PDF-"), ("png", b"\x89PNG")])
def test_figures_need_no_browser(
    tmp_path: Path, drawn: dict[str, Chart], form: str, magic: bytes
) -> None:
    pytest.importorskip("vl_convert")
    picture, _ = write_figures([drawn["friction"]], tmp_path, form=form)
    assert picture.read_bytes().startswith(magic)


def test_without_vl_convert_the_cure_is_named(
    tmp_path: Path, drawn: dict[str, Chart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    with pytest.raises(NGraphBenchError, match=r"pip install 'ngraphbench\[report\]'"):
        write_figures(drawn.values(), tmp_path / "out", form="pdf")
    assert not (tmp_path / "out").exists()
    with pytest.raises(SpecError, match="cannot be 'gif'"):
        write_figures(drawn.values(), tmp_path / "out", form="gif")


def test_no_value_of_a_figure_is_a_formula() -> None:
    run = Run()
    session = run.session()
    for name in ("=1+1", "@x", "+1", "-1", "\t=1"):
        for text, ms in (("eager", 4.0), ("openvino", 2.0)):
            run.cell(session, model(name), text, 1, ms=ms)
    found = chart_csv(charts(Scene(*run.summarise().parts))["speedup"])
    cells = [cell for row in csv.reader(io.StringIO(found)) for cell in row]
    assert "'=1+1" in cells
    assert not [c for c in cells if c.startswith(("=", "+", "-", "@", "\t"))]


def test_a_notebook_shows_hostile_names_as_text() -> None:
    shown = run_html(Scene(*full_run("quick").parts), title=ESCAPES)
    assert HOSTILE not in shown
    assert "&lt;img src=x" in shown
    assert "\x1b" not in shown
    assert "<script" not in shown


def test_a_baseline_is_grey_and_names_keep_their_style() -> None:
    labels = [f"c{i}" for i in range(9)]
    palette = Palette.of([*labels, "eager"], ["eager"])
    assert palette.number("eager") == 0
    assert [palette.number(label) for label in labels] == [1, 2, 3, 4, 5, 6, 7, 1, 2]


@pytest.mark.parametrize(
    ("theme", "series"), [(LIGHT, SERIES_LIGHT), (DARK, SERIES_DARK)], ids=["light", "dark"]
)
def test_series_stand_out_from_their_ground(theme: dict[str, str], series: tuple[str]) -> None:
    assert min(contrast(colour, theme["card"]) for colour in series) >= 3.0


def contrast(one: str, other: str) -> float:
    """Return the contrast of WCAG 2 between two colours."""
    lights = sorted(_light(colour) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _light(colour: str) -> float:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(w * s for w, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
