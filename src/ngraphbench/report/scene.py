"""What the parts of a report share: one evidence, each analysis made once, names for filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from ngraphbench.analysis.breakeven import BreakEven, break_evens
from ngraphbench.analysis.curves import Curve, curves
from ngraphbench.analysis.depth import DepthFit, depth_fits
from ngraphbench.analysis.friction import Friction, frictions
from ngraphbench.analysis.repeats import without_repeats
from ngraphbench.analysis.reversal import Reversal, reversals_of
from ngraphbench.analysis.scaling import Scaling, scalings
from ngraphbench.analysis.tables import Cell, Evidence, Group, Read
from ngraphbench.analysis.titles import shape_text
from ngraphbench.analysis.verdict import Verdict, verdicts_of
from ngraphbench.report.charts import Tags
from ngraphbench.report.palette import Palette
from ngraphbench.types import Json

__all__ = ["AS_IT_IS", "Scene", "anchor", "tags_of"]

AS_IT_IS = "the model's own"
"""What shapes are called that the experiment does not give."""


class Scene:
    """A run as reports look at it. Everything is worked out when it is first asked for."""

    def __init__(
        self,
        records: Sequence[Json],
        sessions: Sequence[Json],
        read: Read,
        *,
        palette: Palette | None = None,
    ) -> None:
        self.evidence = Evidence(records, sessions, read)
        self.palette = palette or Palette.of_evidence(self.evidence)
        self._read = read
        self._tags: dict[tuple[str, str, object], Tags] = {}

    @cached_property
    def newest(self) -> Scene:
        """The run without what was measured again: what its headline, orders and counts are of."""
        found = without_repeats(self.evidence)
        if found is self.evidence:
            return self
        records = [cell.record for cell in found.cells]
        return Scene(records, list(found.sessions.values()), self._read, palette=self.palette)

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
        key = (title, compiler, batch)
        if key not in self._tags:
            group = self.places.get(title)
            unknown = Tags(model=title, compiler=compiler)
            known = tags_of(group, compiler) if group is not None else unknown
            self._tags[key] = replace(known, batch=str(batch))
        return self._tags[key]


def model_name(group: Group) -> str:
    """Return a group's model without what its title adds to it."""
    return str(group.cells[0].record["case"]["model"]["label"])


def tags_of(group: Group, compiler: str = "", *, batch: bool = True) -> Tags:
    """Return what filters know a group, or one compiler in it, by."""
    size = str(group.batch) if batch else ""
    return Tags(model_name(group), compiler, group.device, size, shape_name(group))


def shape_name(group: Group) -> str:
    """Return the shapes that a group's inputs have, as filters and titles call them."""
    shapes = group.cells[0].record["case"]["shapes"]
    return shape_text(shapes) if shapes else AS_IT_IS


def anchor(cell: Cell) -> str:
    """Return the id of a cell's line of evidence on the page."""
    session_id, case_id = cell.key
    return f"cell-{session_id[:16]}-{case_id[:16]}"
