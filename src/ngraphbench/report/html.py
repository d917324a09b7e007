"""One self-contained page: the answer first, then the evidence, then what it does not tell.

The page holds nothing that is not in records or derived from samples. Every string is
escaped, links can only lead into the run directory, and nothing is fetched: its policy lets
the one script and the one style sheet that stand in it act, known by their digests.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from ngraphbench import __version__
from ngraphbench.analysis.reversal import unpaired_count
from ngraphbench.analysis.tables import Evidence, Read
from ngraphbench.analysis.verdict import headline_sentences
from ngraphbench.analysis.versions import version_verdicts
from ngraphbench.errors import NGraphBenchError, StoreError
from ngraphbench.report.alone import block_tables
from ngraphbench.report.charts import Tags
from ngraphbench.report.drawing import key_shape, shape_definitions, whisker
from ngraphbench.report.embedding import chart_html
from ngraphbench.report.facets import Facets
from ngraphbench.report.gallery import charts
from ngraphbench.report.opening import opening
from ngraphbench.report.overview import overview
from ngraphbench.report.palette import DARK, LIGHT, SERIES_DARK, SERIES_LIGHT
from ngraphbench.report.rows import (
    cost_table,
    environment_rows,
    group_row,
    href,
    order_rows,
    session_row,
)
from ngraphbench.report.scene import Scene, anchor, tags_of
from ngraphbench.report.support import reasons, support_rows
from ngraphbench.report.wording import (
    FLAGS,
    STATUSES,
    cautions,
    evaluation_lines,
    flags_used,
    session_notes,
    three_figures,
    visible,
)
from ngraphbench.store.disk import replaced_text
from ngraphbench.types import Json

__all__ = ["write_overview", "write_page", "write_report"]

HERE = Path(__file__).parent


ONE_BY_ONE = 5000
"""Case records above which a page sums up."""


def write_page(
    path: Path, records: Iterable[Json], read: Read, *, title: str, root: Path | None = None
) -> None:
    """Write the page that suits a stream of records, sessions too: every cell, or their sum.

    Raises as ``write_report`` does, before anything is read where jinja2 is missing.
    """
    _need_jinja()
    stream = iter(records)
    found: dict[str, list[Json]] = {"case": [], "session": []}
    for record in stream:
        found[record["kind"]].append(record)
        if len(found["case"]) > ONE_BY_ONE:
            everything = chain(found["case"], found["session"], stream)
            write_overview(path, everything, title=title, root=root)
            return
    write_report(path, found["case"], found["session"], read, title=title, root=root)


def write_report(
    path: Path,
    records: Sequence[Json],
    sessions: Sequence[Json],
    read: Read,
    *,
    title: str,
    root: Path | None = None,
) -> None:
    """Write the page to ``path``; ``root`` is the run directory (by default the page's own).

    The page appears whole or not at all. Raises StoreError when it cannot be written, and
    NGraphBenchError without jinja2.
    """
    _need_jinja()
    scene = Scene(records, sessions, functools.cache(read))
    page = _page(scene, title=title, home=_home(path, root))
    _write(path, _render("template.html", page))


def write_overview(
    path: Path, records: Iterable[Json], *, title: str, root: Path | None = None
) -> None:
    """Write the page of a run of very many cells from a stream of its records, sessions too.

    Raises as ``write_report`` does.
    """
    _need_jinja()
    from ngraphbench.report.overviewpage import overview_page

    page = overview_page(overview(records), title=title, home=_home(path, root))
    _write(path, _render("overview.html", page))


def _home(path: Path, root: Path | None) -> str:
    return os.path.relpath(root or path.parent, path.parent)


def _write(path: Path, text: str) -> None:
    try:
        # A run in progress may write its page at the same time.
        with replaced_text(path, mark=str(os.getpid())) as page:
            page.write(text)
    except OSError as error:
        raise StoreError(
            f"The report {path} cannot be written: {error.strerror}.",
            reason="write",
            hint="Give a file in a folder that is there, with --html.",
        ) from error


def _need_jinja() -> None:
    """Raise before any work is done in vain."""
    try:
        import_module("jinja2")
    except ImportError as error:
        raise NGraphBenchError(
            "The HTML report needs jinja2, which is not installed here.",
            reason="missing-jinja2",
            hint="Run: pip install 'ngraphbench[report]'",
        ) from error


def _render(template: str, page: Json) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawn"] = Markup  # what drawing.py made, where all text is escaped
    environment.filters["three"] = three_figures
    return environment.get_template(template).render(page | _assets() | {"version": __version__})


def _assets() -> Json:
    """Return the script and the style sheet, with the digests that let them act."""
    script = (HERE / "report.js").read_text(encoding="utf-8")
    style = _colours() + (HERE / "style.css").read_text(encoding="utf-8")
    return {
        "script": script,
        "style": style,
        "script_digest": _digest(script),
        "style_digest": _digest(style),
    }


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _colours() -> str:
    """Return the colours of both themes as variables, and the styles of the series."""
    light = _variables(LIGHT, SERIES_LIGHT)
    dark = _variables(DARK, SERIES_DARK)
    series = "".join(f".s{i}{{color:var(--s{i})}}" for i in range(len(SERIES_LIGHT)))
    return (
        f":root{{color-scheme:light;{light}}}"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme]){{color-scheme:dark;{dark}}}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}"
        f"@media print{{:root,:root[data-theme],:root:not([data-theme])"
        f"{{color-scheme:light;{light}--bg:#fff}}}}{series}\n"
    )


def _variables(theme: dict[str, str], series: Sequence[str]) -> str:
    named = [*theme.items(), *((f"s{i}", colour) for i, colour in enumerate(series))]
    return "".join(f"--{name}:{colour};" for name, colour in named)


def _shown(value: Any) -> Any:
    """Make strings safe to look at; markup that the template itself made stays."""
    # Nearly all text is printable as it is, which is the cheapest thing to ask.
    if isinstance(value, str) and not value.isprintable() and not hasattr(value, "__html__"):
        return visible(value, keep="\n\t")
    return value


def _page(scene: Scene, *, title: str, home: str) -> Json:
    evidence = scene.evidence
    link = functools.partial(href, home)
    groups = [
        group_row(group, answer, link)
        for group, answer in zip(evidence.groups, scene.answers, strict=True)
    ]
    cells = [row for group in groups for row in group["rows"]]
    labels = list(scene.palette.numbers)
    facets = Facets(tags_of(g, cell.label) for g in evidence.groups for cell in g.cells)
    return {
        "title": title,
        "opening": opening(scene),
        "headline": headline_sentences(scene.newest.answers, scene.newest.orders),
        "groups": groups,
        "cells": cells,
        "by_id": {row.id: row for row in cells},
        "labels": labels,
        "numbers": scene.palette.numbers,
        "support": support_rows(evidence, labels),
        "reasons": reasons(evidence),
        "versions": version_verdicts(evidence),
        "orders": order_rows(scene),
        "unpaired": unpaired_count(scene.newest.evidence),
        "verified": [row for row in cells if row.verification],
        "evaluations": evaluation_lines(evidence),
        "alone": block_tables(evidence),
        "costs": cost_table(cells),
        "flags": [(flag, FLAGS.get(flag, "see the record")) for flag in flags_used(evidence)],
        "statuses": [(s, m) for s, m in STATUSES.items() if s in {r.status for r in cells}],
        "cautions": cautions(evidence),
        "notes": session_notes(evidence),
        "sessions": [session_row(session, link) for session in evidence.sessions.values()],
        "environments": environment_rows(evidence.cells),
        "counts": _counts(evidence),
        **_drawn(scene, facets),
    }


def _drawn(scene: Scene, facets: Facets) -> Json:
    """Return the charts as markup, by name, and what the template draws with."""
    from markupsafe import Markup

    known = {facet.key: facet.values for facet in facets.filters}
    numbers = {label: i for i, label in enumerate(known.get("c", ()))}
    return {
        "charts": {
            name: chart_html(chart, scene.palette, facets, numbers)
            for name, chart in charts(scene).items()
        },
        "filters": facets.filters,
        "data": functools.cache(lambda tags: Markup(facets.attributes(tags))),
        "shapes": shape_definitions(),
        "shape": functools.cache(
            lambda label: Markup(key_shape("point", scene.palette.number(label)))
        ),
        "whisker": lambda place, y: Markup(whisker(place.low, place.high, y)),
        "Tags": Tags,
        "anchor": anchor,
    }


def _counts(evidence: Evidence) -> str:
    """Return the run in figures, such as ``16 cells: 13 ok, 1 crashed, 2 wrong``."""
    by_status = {s: sum(cell.status == s for cell in evidence.cells) for s in STATUSES}
    parts = ", ".join(f"{count} {status}" for status, count in by_status.items() if count)
    count = len(evidence.cells)
    return f"{count} {'cell' if count == 1 else 'cells'}: {parts}" if count else "no cells"
