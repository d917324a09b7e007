"""Every chart of a run, in the order in which the page shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ngraphbench.report.charts import Chart
from ngraphbench.report.plots.breakeven import break_even_chart
from ngraphbench.report.plots.costs import cost_chart
from ngraphbench.report.plots.depth import depth_chart
from ngraphbench.report.plots.friction import friction_chart
from ngraphbench.report.plots.order import order_chart
from ngraphbench.report.plots.scaling import scaling_chart
from ngraphbench.report.plots.speedup import speedup_chart
from ngraphbench.report.plots.throughput import throughput_chart
from ngraphbench.report.scene import Scene

__all__ = ["CHARTS", "chart_of", "charts"]

CHARTS: Mapping[str, Callable[[Scene], Chart | None]] = {
    "speedup": speedup_chart,
    "throughput": throughput_chart,
    "order": order_chart,
    "scaling": scaling_chart,
    "friction": friction_chart,
    "depth": depth_chart,
    "costs": cost_chart,
    "breakeven": break_even_chart,
}


def charts(scene: Scene) -> dict[str, Chart]:
    """Return the charts that the run has data for, by name."""
    found = {name: chart_of(make, scene) for name, make in CHARTS.items()}
    return {name: chart for name, chart in found.items() if chart is not None}


def chart_of(make: Callable[[Scene], Chart | None], scene: Scene) -> Chart | None:
    """Return one chart with the styles of its run, or None without data."""
    chart = make(scene)
    return replace(chart, palette=scene.palette.numbers) if chart is not None else None
