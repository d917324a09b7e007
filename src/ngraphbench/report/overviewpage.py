"""The page of a run of very many cells: sums, extremes and reasons instead of every cell."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from markupsafe import Markup

from ngraphbench.records import FAILURES
from ngraphbench.report.charts import Tags
from ngraphbench.report.drawing import key_shape, shape_definitions
from ngraphbench.report.embedding import chart_html
from ngraphbench.report.facets import Facets
from ngraphbench.report.opening import Opening, Tile
from ngraphbench.report.overview import Entry, Overview, count_table, spread_chart
from ngraphbench.report.rows import href
from ngraphbench.report.wording import FLAGS
from ngraphbench.types import Json

__all__ = ["overview_page"]

MOST_VALUES = 200
"""Values of a dimension above which it has no filter: a list nobody would read."""


def overview_page(found: Overview, *, title: str, home: str) -> Json:
    """Return what the template ``overview.html`` shows."""
    facets = Facets(_kept(found.entries))
    chart, palette = spread_chart(found), found.palette
    known = {facet.key: facet.values for facet in facets.filters}
    numbers = {label: i for i, label in enumerate(known.get("c", ()))}
    gains, losses = found.extremes()
    labels, models = count_table(found)
    return {
        "title": title,
        "opening": Opening(_lead(found), "", tuple(_tiles(found))),
        "counts": f"{len(found.entries):,} cells in {len(found.sessions):,} sessions",
        "charts": {chart.name: chart_html(chart, palette, facets, numbers)} if chart else {},
        "filters": facets.filters,
        "data": functools.cache(lambda tags: Markup(facets.attributes(tags))),
        "shape": functools.cache(lambda label: Markup(key_shape("point", palette.number(label)))),
        "shapes": shape_definitions(),
        "Tags": Tags,
        "link": functools.partial(href, home),
        "failures": FAILURES,
        "notes": _notes(found),
        "outcomes": found.outcomes(),
        "gains": gains,
        "losses": losses,
        "reasons": found.reasons(),
        "labels": labels,
        "models": models,
        "cautions": _cautions(found),
        "facts": _facts(found.sessions),
        "flags": [
            (flag, count, FLAGS.get(flag, "see the record"))
            for flag, count in found.flags.most_common()
        ],
    }


def _kept(entries: Sequence[Entry]) -> Iterable[Tags]:
    """Return what filters know, without a dimension that has too many values."""
    many = len({entry.model for entry in entries}) > MOST_VALUES
    for entry in entries:
        tags = entry.tags
        yield replace(tags, model="") if many else tags


def _lead(found: Overview) -> str:
    leaders, places = found.leaders()
    devices = len({entry.device for entry in found.entries})
    here = "on this machine" if devices < 2 else f"on these {devices} devices"
    if not leaders:
        return f"No compiler is shown to be faster than its baseline {here}."
    best, count = leaders.most_common(1)[0]
    models = len({entry.model for entry in found.entries})
    ratios = sorted(e.ratio[0] for e in found.entries if e.compiler == best and e.ratio)
    middle = ratios[len(ratios) // 2]
    everywhere = "No compiler is fastest everywhere" if count < places else "One compiler leads"
    return (
        f"{everywhere} {here}: {best} is fastest, or level with the fastest, in {count:,} of"
        f" {places:,} comparisons over {models:,} models, and in the middle {middle:.2f}x as fast"
        " as the baseline."
    )


def _tiles(found: Overview) -> list[Tile]:
    total = len(found.entries)
    done = sum(entry.outcome != "no result" for entry in found.entries)
    failed = sum(entry.status in FAILURES for entry in found.entries)
    checks = Counter(entry.verified for entry in found.entries if entry.verified)
    controlled = [s for s in found.sessions if s["sentinel"]]
    passed = sum(not s["sentinel"]["excludes_one"] for s in controlled)
    tiles = [
        Tile(f"{done:,}", f"of {total:,} cells have a result", "good" if done == total else ""),
        Tile(f"{failed:,}", "cells failed", "bad" if failed else "good"),
    ]
    if checks:
        wrong = checks["wrong"]
        said = f"of {checks.total():,} outputs are wrong"
        tiles.append(Tile(f"{wrong:,}", said, "bad" if wrong else "good"))
    if controlled:
        mood = "good" if passed == len(controlled) else "bad"
        said = f"of {len(controlled):,} controls passed (A/A)"
        tiles.append(Tile(f"{passed:,}", said, mood))
    return tiles


def _notes(found: Overview) -> list[str]:
    untrusted = sum(bool(s["sentinel"] and s["sentinel"]["excludes_one"]) for s in found.sessions)
    notes = [
        f"{len(found.entries):,} cells are too many to show one by one: this page sums them up."
        " ngb show DIR --csv OUT writes every cell with its samples, log and command."
    ]
    if untrusted:
        notes.append(
            f"{untrusted:,} sessions failed their control, the baseline against itself: what they"
            " say is not to be trusted, and is in these sums."
        )
    return notes


def _cautions(found: Overview) -> list[str]:
    said = [
        "Speed-ups are as recorded. Which of two compilers is faster than the other is told from"
        " their intervals against the baseline, which is blunter than rounds side by side.",
        "A median over models says nothing about your model: look it up below.",
        "Inputs are hot: resident, and used again and again.",
    ]
    random = sorted(weights for weights in found.weights if weights.startswith("random"))
    if random:
        said.append(
            "Weights are random for some models: they can hide overflow and slow denormals, and"
            " say nothing about accuracy."
        )
    return said


def _facts(sessions: Sequence[Json]) -> list[tuple[str, str]]:
    hosts = Counter(str(session["host"].get("cpu_model", "unnamed")) for session in sessions)
    profiles = Counter(str(session["profile"]["name"]) for session in sessions)
    started = sorted(str(session["started_at"]) for session in sessions)
    facts = [(f"sessions on {host}", f"{count:,}") for host, count in hosts.most_common(20)]
    facts += [(f"sessions of profile {name}", f"{count:,}") for name, count in profiles.items()]
    if started:
        facts += [("first started", started[0]), ("last started", started[-1])]
    return facts
