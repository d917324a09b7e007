"""A progress display that moves only when fed, so that measured machines stay quiet."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from ngraphbench.report.pace import Best, Pace, duration, session_left_s
from ngraphbench.report.wording import visible
from ngraphbench.types import Json

__all__ = ["RunProgress"]

_TOLD_ANYWHERE = ("waiting", "note", "stopping")


class RunProgress:
    """Draws a run's events on stderr; where that is no terminal, only says why it waits or stops.

    ``feed`` takes the event dicts that a session sends; unknown ones are left out. There
    is no refresh thread. Use it as a context manager, or call ``close``.
    """

    def __init__(
        self, console: Console | None = None, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(stderr=True)
        self._now_s = now_s
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._pace = Pace()
        self._best = Best()

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def feed(self, event: Json) -> None:
        """Take one event and draw it."""
        if not self._console.is_terminal:
            if event.get("event") in _TOLD_ANYWHERE:
                text = f"{event['event']}  {event.get('text', '')}"
                self._console.print(Text(visible(text)), soft_wrap=True)
            return
        if event.get("device"):
            self._on_device(event)
            self._start().refresh()
            return
        draw = getattr(self, f"_on_{event.get('event')}", None)
        if draw is None:
            return
        progress = self._start()
        draw(event)
        progress.refresh()

    def close(self) -> None:
        """Take the display away; feeding again brings it back."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._tasks = {}

    def _start(self) -> Progress:
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.fields[title]}", markup=False),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[note]}", markup=False),
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._progress.start()
        return self._progress

    def _show(
        self, task: str, title: str, *, done: float | None, of: float | None, note: str
    ) -> None:
        progress = self._start()
        if task not in self._tasks:
            self._tasks[task] = progress.add_task("", title="", note="", total=None)
        progress.update(
            self._tasks[task],
            title=visible(title)[:40],
            note=visible(note),
            completed=float(done or 0),
            total=float(of) if of else None,
        )

    def _drop(self, *tasks: str) -> None:
        for task in tasks:
            if task in self._tasks and self._progress is not None:
                self._progress.remove_task(self._tasks.pop(task))

    def _on_device(self, event: Json) -> None:
        """Keep one line for each of several devices: its session, and what it does now."""
        device, kind = str(event["device"]), event.get("event")
        if kind == "session":
            index, of = event.get("index", 1), event.get("of", 1)
            self._places[device] = (index - 1, of)
            self._show(device, device, done=index - 1, of=of, note=str(event.get("title", "")))
        elif kind in ("phase", "round", "waiting"):
            done, of = self._places.get(device, (0, 1))
            doing = str(event.get("phase", "measure" if kind == "round" else kind))
            if kind == "round":
                note = f"round {event.get('round', 0)}/{event.get('rounds_max', 0)}"
            else:
                note = str(event.get("text", ""))
            note = f"session {done + 1}/{of}, {doing}: {note}"
            self._show(device, device, done=done, of=of, note=note)
        elif kind in ("note", "dropped", "stopping"):
            self._say(device, str(event.get("text", "")))
        elif kind == "case" and event.get("status") != "ok":
            self._say(str(event.get("status", "")), f"{event.get('label', '')} on {device}")

    def _on_session(self, event: Json) -> None:
        self._drop("phase", "round", "waiting")
        for line in self._best.news():
            self._say("best so far", line, style="bold cyan")
        index, of = event.get("index", 1), event.get("of", 1)
        left_s = self._pace.session(index, of, self._now_s())
        left = f", about {duration(left_s)} left" if left_s is not None else ""
        self._show(
            "session",
            f"session {index}/{of}",
            done=index - 1,
            of=of,
            note=f"{event.get('title', '')}{left}",
        )

    def _on_record(self, event: Json) -> None:
        self._best.add(event.get("record") or {})

    def _on_phase(self, event: Json) -> None:
        self._drop("waiting", "round")
        done, of = event.get("done"), event.get("of")
        count = f"{done}/{of} " if of else ""
        note = f"{count}{event.get('text', '')}"
        self._show("phase", str(event.get("phase", "")), done=done, of=of, note=note)

    def _on_round(self, event: Json) -> None:
        self._drop("waiting", "phase")
        epochs, epoch = event.get("epochs", 1), event.get("epoch", 0)
        number, most = event.get("round", 0), event.get("rounds_max", 0)
        launch = f"launch {epoch + 1}/{epochs}, " if epochs > 1 else ""
        left_s = session_left_s(event)
        note = f"{launch}round {number}/{most}"
        note += f", at most {duration(left_s)} left" if left_s is not None else ""
        note += _standing(event)
        self._show("round", "measure", done=epoch * most + number, of=epochs * most, note=note)

    def _on_waiting(self, event: Json) -> None:
        self._show("waiting", "waiting", done=0, of=None, note=str(event.get("text", "")))

    def _on_case(self, event: Json) -> None:
        if event.get("status") != "ok":
            self._say(str(event.get("status", "")), str(event.get("label", "")))

    def _on_dropped(self, event: Json) -> None:
        self._say("dropped", str(event.get("text", "")))

    def _on_note(self, event: Json) -> None:
        self._say("note", str(event.get("text", "")))

    def _on_stopping(self, event: Json) -> None:
        self._say("stopping", str(event.get("text", "")))

    def _say(self, word: str, text: str, *, style: str = "bold yellow") -> None:
        """Print a line that stays above the display."""
        line = Text(visible(word), style=style)
        line.append("  " + visible(text), style="default not bold")
        self._start().console.print(line, highlight=False)


def _standing(event: Json) -> str:
    """Return who is still in the race, where there is one."""
    names, starters = event.get("racing") or [], event.get("starters", 0)
    if not names:
        return ""
    named = ", ".join(map(str, names)) if len(names) <= 3 else ""
    return f"; in the race: {named or f'{len(names)} of {starters}'}"
