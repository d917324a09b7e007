"""The first thing people read: the answer in plain words, and how far to trust it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ngraphbench.analysis.reversal import Reversal
from ngraphbench.analysis.tables import Interval, join
from ngraphbench.analysis.verdict import Verdict
from ngraphbench.records import FAILURES
from ngraphbench.report.scene import Scene

__all__ = ["Opening", "Tile", "opening"]


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure at the head of the page; ``mood`` is ``good``, ``bad``, ``warn`` or empty."""

    value: str
    label: str
    mood: str = ""


@dataclass(frozen=True, slots=True)
class Opening:
    """``lead`` is one sentence that a newcomer understands; ``second`` what is most notable."""

    lead: str
    second: str
    tiles: tuple[Tile, ...]


def opening(scene: Scene) -> Opening:
    """Return the head of a page."""
    newest = scene.newest
    return Opening(_lead(newest), _swap(newest.orders), tuple(_tiles(scene)))


def _lead(scene: Scene) -> str:
    answers = scene.answers
    here = _here(answers)
    decided = [answer for answer in answers if answer.outcome == "faster"]
    if not answers or all(answer.outcome == "none" for answer in answers):
        return "Nothing was measured." if not answers else "No candidate gave a result."
    if len(answers) == 1:
        (answer,) = answers
        return f"For {answer.model} {here}, {answer.sentence[0].lower()}{answer.sentence[1:]}"
    if not decided:
        return _undecided(scene, here)
    leaders = Counter(label for answer in decided for label in answer.top)
    best, count = leaders.most_common(1)[0]
    low, high = _spread(scene, best)
    scope = _scope(scene)
    if count == len(answers):
        shared = any(len(answer.top) > 1 for answer in decided)
        level = ", alone or level with others" if shared else ""
        return (
            f"{here[0].upper()}{here[1:]}, {best} is fastest in all {scope}{level}:"
            f" {_factors(low, high)} as fast as {join(_baselines(answers))}."
        )
    others = f"{best} leads in {count} of {scope}"
    return (
        f"No compiler is fastest everywhere {here}: {others},"
        f" {_factors(low, high)} as fast as {join(_baselines(answers))}."
    )


def _here(answers: Sequence[Verdict]) -> str:
    devices = {answer.device for answer in answers}
    return "on this machine" if len(devices) < 2 else f"on these {len(devices)} devices"


def _baselines(answers: Sequence[Verdict]) -> list[str]:
    return list(dict.fromkeys(answer.baseline for answer in answers))


def _scope(scene: Scene) -> str:
    answers = scene.answers
    titles = {answer.model for answer in answers}
    batches = sorted({answer.batch for answer in answers})
    if len(titles) == 1:
        return f"{len(answers)} batch sizes of {titles.pop()}"
    # One model at two shapes has two titles.
    count = len({group.model for group in scene.evidence.groups})
    models = "1 model" if count == 1 else f"{count} models"
    sizes = f"batch {batches[0]}" if len(batches) == 1 else f"{len(batches)} batch sizes"
    return f"{len(answers)} comparisons ({models}, {sizes})"


def _spread(scene: Scene, label: str) -> tuple[Interval | None, Interval | None]:
    """Return the smallest and the largest speed-up of a candidate where it leads."""
    groups = scene.evidence.groups
    found = [
        cell.speedup
        for group, answer in zip(groups, scene.answers, strict=True)
        if answer.outcome == "faster" and label in answer.top
        for cell in group.cells
        if cell.label == label and cell.speedup
    ]
    found.sort(key=lambda speedup: speedup.estimate)
    return (found[0], found[-1]) if found else (None, None)


def _factors(low: Interval | None, high: Interval | None) -> str:
    if low is None or high is None:
        return "surely more than once"
    if low == high or low.times == high.times:
        return f"{high.times} ({high.range})"
    return f"{low.times} to {high.times}"


def _undecided(scene: Scene, here: str) -> str:
    answers = scene.answers
    outcomes = {answer.outcome for answer in answers}
    bases = join(_baselines(answers))
    if outcomes == {"not-faster"}:
        return f"No compiler is faster than {bases} {here}, in {_scope(scene)}."
    if outcomes == {"alone"}:
        return f"Only {bases} has results {here}, so there is nothing to compare."
    count = sum(answer.outcome == "unresolved" for answer in answers)
    if count:
        return (
            f"No compiler is shown to be faster than {bases} {here}:"
            f" {count} of {len(answers)} comparisons are unresolved."
        )
    return f"No compiler is shown to be faster than {bases} {here}."


def _swap(orders: Sequence[Reversal]) -> str:
    """Return what a compiler changes in the order of models, or an empty string."""
    swaps = [order for order in orders if order.verdict == "reversed"]
    if not swaps:
        return ""
    first = swaps[0]
    before, after = first.under_baseline, first.under_compiler
    assert before is not None
    assert after is not None
    more = f" {len(swaps) - 1} more such swaps are below." if len(swaps) > 2 else ""
    more = " One more such swap is below." if len(swaps) == 2 else more
    return (
        f"{first.model_a} and {first.model_b} swap places under {first.compiler} at batch"
        f" {first.batch}: in {first.baseline} {_ahead(first, before)}, under {first.compiler}"
        f" {_ahead(first, after)}.{more}"
    )


def _ahead(order: Reversal, ratio: Interval) -> str:
    """Return which model is ahead and by how much; ``ratio`` is the first over the second."""
    if ratio.estimate >= 1.0:
        return f"{order.model_a} has {ratio.times} the throughput"
    turned = Interval(1 / ratio.estimate, 1 / ratio.high, 1 / ratio.low, ratio.confidence)
    return f"{order.model_b} has {turned.times} the throughput"


def _tiles(scene: Scene) -> list[Tile]:
    cells = scene.evidence.cells
    if not cells:
        return []
    measured = sum(cell.measured for cell in cells)
    failed = sum(cell.status in FAILURES for cell in cells)
    tiles = [
        Tile(
            f"{measured} of {len(cells)}",
            "cells have a result" if not failed else f"cells have a result; {failed} failed",
            "bad" if failed else "good" if measured == len(cells) else "",
        )
    ]
    checks = Counter(
        cell.record["verification"]["verdict"] for cell in cells if cell.record["verification"]
    )
    if checks:
        wrong = checks["wrong"]
        tiles.append(
            Tile(
                f"{checks['ok']} of {checks.total()}",
                "outputs are right" if not wrong else f"outputs are right; {wrong} wrong",
                "bad" if wrong else "good" if checks["ok"] == checks.total() else "warn",
            )
        )
    orders = scene.newest.orders
    swaps = sum(order.verdict == "reversed" for order in orders)
    if swaps:
        pairs = sum(order.reason != "unpaired" for order in orders)
        tiles.append(Tile(f"{swaps} of {pairs}", "pairs of models swap places", "warn"))
    return [*tiles, *_control_tiles(scene)]


def _control_tiles(scene: Scene) -> list[Tile]:
    sessions = list(scene.evidence.sessions.values())
    tiles = []
    controlled = [session for session in sessions if session["sentinel"]]
    failed = sum(scene.evidence.untrusted(session["session_id"]) for session in sessions)
    if failed:
        part = f"{failed} of {len(controlled)} " if len(controlled) > 1 else ""
        tiles.append(Tile(f"{part}failed", "baseline against itself (A/A)", "bad"))
    elif controlled:
        tiles.append(Tile("passed", "baseline against itself (A/A)", "good"))
    launches = sorted({int(session["epochs_done"]) for session in sessions})
    if launches:
        shares = sorted({float(s["profile"]["confidence"]) for s in sessions})
        count = "-".join(map(str, dict.fromkeys((launches[0], launches[-1]))))
        single = launches[0] < 2
        tiles.append(
            Tile(
                f"{100 * shares[0]:.0f} %",
                f"intervals; {count} {'launch' if count == '1' else 'launches'} each",
                "warn" if single else "",
            )
        )
    return tiles
