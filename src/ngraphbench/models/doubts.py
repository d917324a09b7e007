"""What a reader should know before trusting a check: notes on a model at one batch size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ngraphbench.errors import Unsupported
from ngraphbench.models.batch import (
    Run,
    contradiction,
    differing_row,
    output_axis,
    sampled_rows,
    take_rows,
)
from ngraphbench.models.feeds import Feed
from ngraphbench.models.origins import Source
from ngraphbench.models.reference import Outputs, Reference
from ngraphbench.workload import NO_REFERENCE

__all__ = ["is_constant", "notes_on"]


def is_constant(feed: Feed, reference: Reference) -> bool:
    """Return whether other inputs give the very same outputs."""
    if reference.name == NO_REFERENCE:
        return False
    return feed.differs and all(
        np.array_equal(a, reference.b[name], equal_nan=a.dtype.kind in "fc")
        for name, a in reference.a.items()
    )


def notes_on(source: Source, feed: Feed, reference: Reference, batch: int) -> list[str]:
    """Return what a reader should know before trusting the check at this batch size."""
    notes = []
    if reference.stateful:
        notes.append(f"stateful: a run changes {reference.stateful} inside the model")
    if reference.quantised:
        notes.append("quantised: outputs are compared with the tolerance of int8")
    if not reference.deterministic:
        notes.append("non-deterministic: the reference differs from itself when run twice")
    if feed.a and not feed.differs:
        notes.append("one-input-set: the given inputs cannot be varied, so a and b are the same")
    elif is_constant(feed, reference):
        notes.append("constant: the outputs do not depend on the inputs; the check proves little")
    if batch > 1 and any(axis is not None for axis in feed.axes.values()):
        notes += _batch_notes(source, feed, reference, batch)
    return notes


def _batch_notes(source: Source, feed: Feed, reference: Reference, batch: int) -> list[str]:
    """Return what is odd about the batch axis of outputs, and about rows.

    Raises Unsupported (``batch-fixed``) where an output lacks the batch axis it declares.
    """
    whole, run = reference.own, _run_alone(source, feed)
    first = _first_row(run, feed)
    problem = contradiction(
        source.declared_outputs(),
        set(source.plan.symbols),
        {name: array.shape for name, array in whole.arrays.items()},
        batch=batch,
    )
    if problem:
        raise Unsupported(
            f"At batch {batch} {problem}.",
            reason="batch-fixed",
            hint="Its operators fix the batch, or fold it into another axis.",
        )
    axes = {name: _axis_of(name, whole, first, batch) for name in whole.arrays}
    notes = []
    for name, axis in axes.items():
        if axis is None:
            where = "x".join(map(str, whole.arrays[name].shape)) or "scalar"
            notes.append(f"output-has-no-batch: {name} is {where} at batch {batch}")
    followed = {name: axis for name, axis in axes.items() if axis is not None}
    if run is not None and first is not None and reference.deterministic and followed:
        notes += _row_notes(run, feed, whole, batch=batch, followed=followed)
    return notes


def _row_notes(
    run: Run, feed: Feed, whole: Outputs, *, batch: int, followed: Mapping[str, int]
) -> list[str]:
    """Return whether rows are alone what they are in the batch, and how many were tried."""
    rows = sampled_rows(batch)
    try:
        row, tried = differing_row(run, feed.a, whole, axes=feed.axes, rows=rows, followed=followed)
    except Exception:  # a check in passing: a model may refuse some rows alone
        return []
    if row is None:
        return [f"rows-alone: {tried} of {batch} rows were tried and are alone as in the batch"]
    return [
        f"rows-depend-on-batch: row {row} alone gives other values than in the batch"
        f" ({tried} of {batch} rows were tried)"
    ]


def _axis_of(name: str, whole: Outputs, alone: Outputs | None, batch: int) -> int | None:
    shape = whole.arrays[name].shape
    if alone is not None and name in alone.arrays:
        return output_axis(alone.arrays[name].shape, shape, sizes=(1, batch))
    return shape.index(batch) if batch in shape else None


def _run_alone(source: Source, feed: Feed) -> Run | None:
    try:
        return source.plain(feed.specs)
    except Exception:  # a check in passing
        return None


def _first_row(run: Run | None, feed: Feed) -> Outputs | None:
    """Return the outputs of the first row alone, where the model gives any."""
    try:
        return run(take_rows(feed.a, feed.axes, [0])) if run is not None else None
    except Exception:  # a check in passing: a model may simply refuse batch 1
        return None
