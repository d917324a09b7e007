"""What is said of sizes that a model leaves open: which ran, or that none did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ngraphbench.errors import CompileFailed, NGraphBenchError
from ngraphbench.models.dims import dim_text, is_expression, sizes_text
from ngraphbench.models.inputs import InputPlan
from ngraphbench.models.reference import Reference

__all__ = ["all_failed", "with_sizes"]


def with_sizes(reference: Reference, plan: InputPlan, attempt: int) -> Reference:
    """Return the reference with a note of the sizes that ran, where the first ones did not."""
    if not attempt:
        return reference
    sizes = {k: v for k, v in plan.sizes(attempt).items() if not is_expression(k)}
    note = f"dims-found: {sizes_text(sizes)}, since the first guess does not run or gives constants"
    return replace(reference, notes=(note, *reference.notes))


def all_failed(failures: Sequence[NGraphBenchError], plan: InputPlan) -> NGraphBenchError:
    """Return the first failure; where sizes may be why, with all tried and how to give others."""
    failure = failures[0]
    sizes = [plan.sizes(attempt) for attempt in range(plan.attempts)]
    tried = {k: [one[k] for one in sizes] for k in sizes[0] if not is_expression(k)}
    if not tried or len({one.message for one in failures}) == 1:
        # The same at every size, such as an operator that nobody knows.
        return failure
    texts = [
        f"{dim_text(name)} as {', '.join(map(str, dict.fromkeys(found)))}"
        for name, found in tried.items()
    ]
    free = next(spec for spec in plan.specs if set(spec.shape) & set(tried))
    shape = "x".join("SIZE" if n in tried else str(n) for n in free.shape)
    return CompileFailed(
        f"{failure.message.rstrip('.')}. Sizes that the file leaves open were guessed:"
        f" {'; '.join(texts)}.",
        reason=failure.reason,
        hint=f"Give one that fits: --input {free.name}={shape}, a number for SIZE.",
    )
