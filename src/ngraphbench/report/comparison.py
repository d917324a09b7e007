"""Two runs compared, as lines on a terminal and as markdown for a pull request.

Whatever was not written by this package is untrusted text: control characters are made
visible, and in markdown nothing of it acts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ngraphbench.analysis.regressions import Change, RunComparison
from ngraphbench.report.bars import span
from ngraphbench.report.wording import CLAIMS, MARKS, figure, shorten, visible

__all__ = ["comparison_notes", "markdown", "print_comparison"]

SIGNS = {**MARKS, "stopped": "✗"}
_STYLES = {
    "faster": "bold cyan",
    "slower": "magenta",
    "unresolved": "yellow",
    "stopped": "bold red",
    "reference": "dim",
}
DISTURBED = (
    "Beside other work launches may differ by more than is believed, so that what did not change"
    " is called slower: measure both runs again on a quiet machine before you act on this."
)
_BAR = 17
MARKDOWN_ROWS = 60


def print_comparison(console: Console, found: RunComparison, paired: Sequence[str] = ()) -> None:
    """Print the answer, a line per cell, what differs, and how to get the paired answer.

    ``paired`` holds commands that measure both versions side by side.
    """
    style = "bold red" if found.regressions else "bold"
    console.print(Text(visible(found.headline), style=style))
    if found.forbidding:
        console.print(Text("These runs are not alike (--force): see below.", style="bold yellow"))
    console.print()
    console.print(_table(found, console.width))
    for title, lines in _sections(found, paired):
        console.print()
        console.print(Text(title, style="bold"))
        for line in lines:
            console.print(Padding(Text(visible(line)), (0, 0, 0, 2), expand=False))


def _table(found: RunComparison, width: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    wide = width >= 100
    names = shorten((visible(change.model) for change in found.changes), 30 if wide else 14)
    labels = shorten((visible(change.label) for change in found.changes), 40 if wide else 15)
    table.add_column("model", no_wrap=True)
    table.add_column("b", justify="right")
    table.add_column("compiler", no_wrap=True)
    if wide:
        table.add_column("ms before", justify="right")
        table.add_column("ms after", justify="right")
    table.add_column("speed", justify="right", no_wrap=True)
    table.add_column("interval", justify="right", no_wrap=True)
    reach = _reach(found)
    table.add_column(_scale(reach), no_wrap=True)
    table.add_column("", no_wrap=wide, overflow="fold")
    last: tuple[str, int] = ("", 0)
    for change in found.changes:
        place = (change.model, change.batch)
        head = ("", "") if place == last else (names[visible(change.model)], str(change.batch))
        last = place
        latency = [figure(value) for value in change.latency_ms] if wide else []
        speed = change.speed
        told = (speed.times, speed.range) if speed else ("–", "")
        bar = span(speed.low, speed.estimate, speed.high, reach=reach, width=_BAR) if speed else ""
        style = _STYLES.get(change.verdict, "")
        cells = (*head, labels[visible(change.label)], *latency, *told, bar)
        table.add_row(*map(Text, cells), Text(visible(_word(change)), style=style))
    return table


def _word(change: Change) -> str:
    sign, word = SIGNS.get(change.verdict, ""), str(change.verdict)
    if change.regression and change.verdict == "slower":
        word = "regression"
    if change.verdict == "stopped":
        word = f"was {change.statuses[0]}, is {change.reason}"
    return f"{sign} {word}".strip()


def _reach(found: RunComparison) -> float:
    """Return the factor at the ends of the scale: so that most intervals fit in it."""
    ends = [max(c.speed.high, 1.0 / c.speed.low) for c in found.changes if c.speed]
    return min(4.0, max(1.05, *ends)) if ends else 1.05


def _scale(reach: float) -> str:
    left, right = f"{1 / reach:.2f}", f"{reach:.2f}"
    return f"{left}{'1':^{_BAR - len(left) - len(right)}}{right}"


def _sections(found: RunComparison, paired: Sequence[str]) -> list[tuple[str, list[str]]]:
    changed = [
        f"{change.place}: {change.statuses[0]} before, {change.statuses[1]} after"
        for change in found.changes
        if change.status_changed
    ]
    untold: dict[str, list[str]] = {}
    for change in found.changes:
        if change.verdict in ("unresolved", "unstable") and change.reason:
            untold.setdefault(change.reason, []).append(change.place)
    sections = [
        ("Status", changed),
        ("Not compared", [f"{why}: {', '.join(where)}" for why, where in untold.items()]),
        ("Gone", [", ".join(found.gone)] if found.gone else []),
        ("New", [", ".join(found.new)] if found.new else []),
        ("What differs", [one.sentence for one in found.differences]),
        ("Disturbed", [*found.disturbed, DISTURBED] if found.disturbed else []),
        ("Notes", comparison_notes(found)),
        ("For the paired answer", list(paired)),
    ]
    return [(title, lines) for title, lines in sections if lines]


def comparison_notes(found: RunComparison) -> list[str]:
    """Return what a reader must know of these figures, a sentence each."""
    if not found.judged:
        return []
    references = dict.fromkeys(c.reference for c in found.changes if c.speed)
    notes = [
        "Speed is the time before over the time after, each against"
        f" {', '.join(references)} in its own run: what slows both down alike cannot be seen.",
        f"Regression: surely slower, and by more than {100 * found.threshold:g} % as estimated.",
        f"Family-wise {100 * found.confidence:g} % over {found.judged} cells (Holm);"
        " the intervals hold what launches of both runs add.",
    ]
    if found.single_launch:
        notes.append("Single launch: small changes go unseen; use profile default or thorough.")
    return [*notes, CLAIMS[found.claim]]


def markdown(found: RunComparison, paired: Sequence[str] = ()) -> str:
    """Return the comparison as markdown: the answer, a table, and the rest folded away."""
    mark = "❌" if found.regressions else "✅" if found.judged else "⚠️"
    lines = [f"### {mark} {_inert(found.headline)}", ""]
    if found.forbidding:
        unlike = "; ".join(_inert(one.sentence) for one in found.forbidding)
        lines += [f"⚠️ These runs are not alike: {unlike}.", ""]
    ordered = sorted(found.changes, key=lambda c: (not c.regression, c.verdict == "tie"))
    lines += [
        "| model | batch | compiler | ms before | ms after | speed | interval | |",
        "|---|--:|---|--:|--:|--:|--:|---|",
    ]
    for change in ordered[:MARKDOWN_ROWS]:
        latency = [figure(value) for value in change.latency_ms]
        told = (change.speed.times, change.speed.range) if change.speed else ("–", "")
        word = _word(change)
        if change.reason and change.verdict != "stopped":
            word += f" ({change.reason})"
        name = f"**{_inert(word)}**" if change.regression else _inert(word)
        row = " | ".join(map(_inert, (change.model, change.batch, change.label, *latency, *told)))
        lines.append(f"| {row} | {name} |")
    hidden = max(0, len(ordered) - MARKDOWN_ROWS)
    if hidden:
        lines.append(f"\n... and {hidden} more cells.")
    lines += ["", "<details><summary>What differs, and how to read it</summary>", ""]
    for title, told_lines in _sections(found, paired):
        if title == "Not compared":
            continue
        lines += [f"**{title}**", ""]
        code = title == "For the paired answer"
        lines += [f"- {_code(line) if code else _inert(line)}" for line in told_lines]
        lines.append("")
    return "\n".join([*lines, "</details>", ""])


def _inert(text: object) -> str:
    """Return untrusted text that reads the same in markdown and does nothing there.

    No mention, link, image, tag, or end of a table's cell: ``@`` and ``#`` would call people and
    tickets.
    """
    escaped = re.sub(r"([\\`*_{}\[\]<>()#!|~&:@])", _entity, visible(text))
    return re.sub(r"\bwww\.", "www&#46;", escaped)


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[1])};" if found[1] not in "():" else found[1]


def _code(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {visible(text)} {fence}"
