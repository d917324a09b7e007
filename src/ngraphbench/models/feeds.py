"""The input values of one batch size: both sets, seeded, by example, or the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ngraphbench.models.inputs import InputPlan
from ngraphbench.models.values import dims_of, generate, load_user_inputs
from ngraphbench.types import Arrays, TensorSpec

__all__ = ["Feed", "feed_from_file", "make_feed"]


@dataclass(frozen=True, slots=True)
class Feed:
    """Concrete inputs of one batch size: their specs, both sets of values, the batch axes."""

    specs: tuple[TensorSpec, ...]
    a: Arrays
    b: Arrays
    axes: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        return any(not np.array_equal(self.a[n], self.b[n], equal_nan=False) for n in self.a)


def make_feed(
    plan: InputPlan,
    batch: int,
    *,
    seed: int,
    attempt: int = 0,
    examples: Callable[[int], Arrays] | None = None,
) -> Feed:
    """Return both input sets at ``batch``, with the plan's sizes of the given attempt.

    Inputs whose generator is ``file`` come from ``examples``, which maps a seed to arrays.
    Raises Unsupported for a batch size that the plan does not allow.
    """
    specs = plan.bound(batch, attempt=attempt)
    own = examples(seed) if examples is not None else {}
    other = examples(seed + 1) if examples is not None and own else {}
    feed = Feed(specs=specs, a={}, b={}, axes=plan.batch_axes())
    for spec in specs:
        if spec.generator == "file" and spec.name in own:
            feed.a[spec.name], feed.b[spec.name] = own[spec.name], other[spec.name]
        else:
            feed.a[spec.name] = generate(spec, seed=seed, which="a")
            feed.b[spec.name] = generate(spec, seed=seed, which="b")
    if own and not feed.differs:
        return _varied(plan, specs, feed.a, seed=seed)
    return feed


def feed_from_file(plan: InputPlan, batch: int, *, path: Path, seed: int) -> Feed:
    """Return the user's ``.npz`` arrays as set a, and a variation of them as set b.

    Raises SpecError or Unsupported for a file that does not fit the model or the batch.
    """
    plan.bound(batch)  # refuses a batch size that the model does not have
    a = load_user_inputs(path, plan.specs, batch)
    return _varied(plan, dims_of(plan.specs, a), a, seed=seed)


def _varied(plan: InputPlan, specs: tuple[TensorSpec, ...], a: Arrays, *, seed: int) -> Feed:
    """Return a feed whose second set is made from the first, as the user gave only one.

    Rows change places; where that changes nothing, floats are scaled at random.
    """
    axes = plan.batch_axes()
    b = {
        name: array if axes.get(name) is None else np.roll(array, 1, axis=axes[name])
        for name, array in a.items()
    }
    feed = Feed(specs=specs, a=a, b=b, axes=axes)
    if not feed.differs:
        random = np.random.default_rng(seed)
        for name, array in a.items():
            if array.dtype.kind == "f":
                b[name] = (array * random.uniform(0.5, 1.5, array.shape)).astype(array.dtype)
    return feed
