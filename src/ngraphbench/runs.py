"""A run directory as people and tools read it; nothing here can measure, or imports what does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngraphbench.records import FAILURES, USER_REASONS
from ngraphbench.store.rundir import RunDir
from ngraphbench.store.samples import read_samples
from ngraphbench.types import Json

if TYPE_CHECKING:
    import pandas
    import polars

    from ngraphbench.analysis.metrics import Metrics
    from ngraphbench.report.charts import Chart
    from ngraphbench.summary import Samples

__all__ = ["Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory, read only: records, samples, and what they say.

    ``case_ids`` narrows it to the cells of one plan; None holds everything stored.
    """

    path: Path
    case_ids: tuple[str, ...] | None = None

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Return the run in folder ``path``. Raises StoreError when there is none."""
        RunDir.open(Path(path))
        return cls(Path(path))

    def records(self) -> list[Json]:
        """Return the latest case record of every cell."""
        found = {record["case_id"]: record for record in RunDir.open(self.path).latest()}
        wanted = found if self.case_ids is None else self.case_ids
        return [found[case_id] for case_id in wanted if case_id in found]

    def history(self) -> list[Json]:
        """Return every case record, oldest first, also those that a retry replaced."""
        return [
            record
            for record in RunDir.open(self.path).records()
            if record["kind"] == "case"
            and (self.case_ids is None or record["case_id"] in self.case_ids)
        ]

    def sessions(self) -> list[Json]:
        """Return every session record."""
        return RunDir.open(self.path).sessions()

    def samples(self, relative: str) -> Samples:
        """Return the columns of a sample file, by the path its record gives."""
        return read_samples(self.path / relative)

    def headline(self) -> str:
        """Return the verdict in one or two sentences."""
        from ngraphbench.analysis.verdict import headline
        from ngraphbench.report.scene import Scene

        newest = Scene(self.history(), self.sessions(), self.samples).newest
        return headline(newest.answers, newest.orders)

    def metrics(self) -> Metrics:
        """Return how speed scales with batch size, depth and model, and what orders that."""
        from ngraphbench.analysis.metrics import metrics

        return metrics(self.history(), self.sessions(), self.samples)

    def export(self, folder: str | Path, *, form: str = "csv") -> list[Path]:
        """Write every case record and every slot as tables, and return their paths.

        ``form`` is ``csv`` or ``parquet`` (needs polars); docs/data.md describes the columns.
        """
        from ngraphbench.store.export import export_run

        return export_run(self.path, self._stream(), Path(folder), form=form)

    def _stream(self) -> Iterator[Json]:
        """Yield the case records of ``history``, one at a time."""
        return (record for record in self._everything() if record["kind"] == "case")

    def _everything(self) -> Iterator[Json]:
        """Yield the records of sessions and of the cells that this run is about."""
        for record in RunDir.open(self.path).journal.stream():
            known = self.case_ids is None or record["kind"] != "case"
            if known or record["case_id"] in (self.case_ids or ()):
                yield record

    def report(self, path: str | Path | None = None) -> Path:
        """Write the HTML report and return its path (``report.html`` in the run directory).

        More than 5,000 case records are summed up instead of shown one by one.
        """
        from ngraphbench.report.html import write_page
        from ngraphbench.store.journal import uncollected

        target = Path(path) if path is not None else self.path / "report.html"
        title = self.path.resolve().name
        with uncollected():
            everything = self._everything()
            write_page(target, everything, self.samples, title=title, root=self.path)
        return target

    def charts(self) -> dict[str, Chart]:
        """Return the charts that the run has data for, by name; a notebook shows them.

        ``chart.table()`` are the values, ``chart.to_svg()`` is a picture that stands alone.
        """
        from ngraphbench.report.gallery import charts
        from ngraphbench.report.scene import Scene

        return charts(Scene(self.history(), self.sessions(), self.samples))

    def figures(self, folder: str | Path, *, form: str = "svg") -> list[Path]:
        """Write every chart for a paper, its values beside it as CSV, and return the paths.

        ``form`` is ``svg``, ``pdf`` or ``png``; the last two need ``ngraphbench[report]``.
        """
        from ngraphbench.report.figures import write_figures

        return write_figures(self.charts().values(), Path(folder), form=form)

    def _repr_html_(self) -> str:
        """Return the verdict, the cells and the speed-ups, as a notebook shows them."""
        from ngraphbench.report.notebook import run_html
        from ngraphbench.report.scene import Scene

        scene = Scene(self.history(), self.sessions(), self.samples)
        return run_html(scene, title=self.path.resolve().name)

    def exit_code(self, *, strict: bool = False) -> int:
        """Return 1 when a cell went wrong (``strict``: or was unstable), else 0.

        2 when the user's inputs stopped every cell.
        """
        bad = FAILURES | ({"unstable"} if strict else set())
        records = self.records()
        if records and all(record["reason"] in USER_REASONS for record in records):
            return 2
        return int(any(record["status"] in bad for record in records))

    def to_polars(self) -> polars.DataFrame:
        """Return one row per cell as a polars table. Needs polars."""
        import polars

        return polars.DataFrame(self._rows(), infer_schema_length=None)

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per cell as a pandas table. Needs pandas."""
        import pandas

        return pandas.DataFrame(self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        from ngraphbench.store.export import cell_row

        return [cell_row(record) for record in self.records()]
