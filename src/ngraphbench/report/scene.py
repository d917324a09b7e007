"""What the parts of a report share: one evidence, each analysis made once, names for filters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ngraphbench.analysis.breakeven import BreakEven, break_evens
from ngraphbench.analysis.curves import Curve, curves
from ngraphbench.analysis.depth import DepthFit, depth_fits
from ngraphbench.analysis.friction import Friction, frictions
from ngraphbench.analysis.reversal import Reversal, reversals_of
from ngraphbench.analysis.scaling import Scaling, scalings
from ngraphbench.analysis.tables import Cell, Evidence, Group, Read
from ngraphbench.analysis.verdict import Verdict, verdicts_of
from ngraphbench.report.charts import Tags
from ngraphbench.report.palette import Palette
from ngraphbench.types import Json

__all__ = ["Scene", "anchor", "tags_of"]


class Scene:
    """A run as reports look at it. Everything is worked out when it is first asked for."""

    def __init__(self, records: Sequence[Json], sessions: Sequence[Json], read: Read) -> None:
        self.evidence = Evidence(records, sessions, read)
        self.palette = Palette.of_evidence(self.evidence)

    @cached_property
    def answers(self) -> list[Verdict]:
        return verdicts_of(self.evidence)

    @cached_property
    def orders(self) -> list[Reversal]:
        return reversals_of(self.evidence)

    @cached_property
    def curves(self) -> list[Curve]:
        return curves(self.evidence)

    @cached_property
    def scalings(self) -> list[Scaling]:
        return scalings(self.evidence)

    @cached_property
    def frictions(self) -> list[Friction]:
        return frictions(self.evidence)

    @cached_property
    def depths(self) -> list[DepthFit]:
        return depth_fits(self.evidence)

    @cached_property
    def break_evens(self) -> list[BreakEven]:
        return break_evens(self.evidence)

    @cached_property
    def places(self) -> dict[str, Group]:
        """A group of each title, for what its model and device are called."""
        return {group.title: group for group in self.evidence.groups}

    def tags(self, title: str, compiler: str = "", batch: object = "") -> Tags:
        """Return what filters know a thing by that belongs to the groups of this title."""
        group = self.places.get(title)
        if group is None:
            return Tags(model=title, compiler=compiler, batch=str(batch))
        return Tags(model_name(group), compiler, group.device, str(batch))


def model_name(group: Group) -> str:
    """Return a group's model without what its title adds to it."""
    return str(group.cells[0].record["case"]["model"]["label"])


def tags_of(group: Group, compiler: str = "", *, batch: bool = True) -> Tags:
    """Return what filters know a group, or one compiler in it, by."""
    return Tags(model_name(group), compiler, group.device, str(group.batch) if batch else "")


def anchor(cell: Cell) -> str:
    """Return the id of a cell's line of evidence on the page."""
    session_id, case_id = cell.key
    return f"cell-{session_id[:16]}-{case_id[:16]}"
