"""What the user asks: the experiment file as validated, frozen models.

Reading YAML is ``spec_file``, the small notations are ``spec_values``, and turning
pydantic's errors into ours is ``spec_errors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from ngraphbench.case import Limits
from ngraphbench.errors import SpecError, nearest
from ngraphbench.profiles import PROFILES, claim_problem
from ngraphbench.spec_errors import spec_error
from ngraphbench.spec_file import Document, Keys, read_document
from ngraphbench.spec_values import (
    CompilerSpec,
    compiler_entry,
    dim_entry,
    generator_entry,
    in_flight_entry,
    name_entry,
    parse_bytes,
    parse_compiler,
    parse_seconds,
    rate_entry,
    setting_entry,
    sustained_entry,
    threads_entry,
)
from ngraphbench.types import DTYPES, Json

__all__ = [
    "AXES",
    "MODES",
    "PRECISIONS",
    "CompilerSpec",
    "Experiment",
    "InputEntry",
    "Measure",
    "ModelEntry",
    "build_experiment",
    "load_experiment",
    "parse_bytes",
    "parse_compiler",
    "parse_seconds",
    "shape_combinations",
]

AXES = ("compiler", "batch", "model", "precision")
MODES = ("sync", "queued")
CLAIMS = ("auto", "artefact", "compiler")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8")


def _choice(*names: str) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise PydanticCustomError(
                "choice", "cannot be {value}", {"value": repr(value), "choices": list(names)}
            )
        return value

    return AfterValidator(check)


def _unique(values: list[Any]) -> list[Any]:
    if not values:
        raise ValueError("needs at least one entry; the list is empty")
    keys = [(type(value), value) for value in values]
    for i, key in enumerate(keys):
        if key in keys[:i]:
            raise ValueError(f"holds {values[i]!r} twice")
    return values


def _not_empty(values: list[Any]) -> list[Any]:
    if not values:
        raise ValueError("needs at least one entry; the list is empty")
    return values


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _shape_list(value: object) -> object:
    flat = isinstance(value, list) and not any(isinstance(item, list) for item in value)
    return [value] if flat and value else value


def _positive(value: int) -> int:
    if value < 1:
        raise ValueError(f"must be at least 1, not {value}")
    return value


def _seed(value: int) -> int:
    if not 0 <= value < 2**63:
        raise ValueError(f"must be a whole number from 0 to 2^63 - 1, not {value}")
    return value


def _model_entry(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


def _baseline(value: str) -> str:
    compiler_entry(value)
    return value


def _limits(value: object) -> Limits:
    if isinstance(value, Limits):
        return value
    entry = LimitsEntry.model_validate(value)
    return Limits(
        first_call_s=entry.first_call,
        compile_s=entry.compile,
        cell_s=entry.cell,
        memory_bytes=entry.memory,
    )


def _limits_as_written(limits: Limits) -> Json:
    return {
        "first_call": limits.first_call_s,
        "compile": limits.compile_s,
        "cell": limits.cell_s,
        "memory": limits.memory_bytes,
    }


def _compiler_as_written(spec: CompilerSpec) -> str | Json:
    return {spec.head: dict(spec.options)} if spec.options else spec.head


Positive = Annotated[int, AfterValidator(_positive)]
Seed = Annotated[int, AfterValidator(_seed)]
Dim = Annotated[Any, BeforeValidator(dim_entry)]
InFlight = Annotated[list[Positive], BeforeValidator(in_flight_entry), AfterValidator(_unique)]
Shape = list[Dim]
Setting = Annotated[Any, BeforeValidator(setting_entry)]
Seconds = Annotated[float, BeforeValidator(parse_seconds)]
Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Compiler = Annotated[
    CompilerSpec, BeforeValidator(compiler_entry), PlainSerializer(_compiler_as_written)
]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class InputEntry(_Entry):
    """What the user says about one input of a model; None leaves what the model says."""

    shape: Shape | None = None
    dtype: Annotated[str, _choice(*DTYPES)] | None = None
    generator: Annotated[str, AfterValidator(generator_entry)] | None = None


class ModelEntry(_Entry):
    """A model as the user named it. Paths are relative to the experiment file: ``eval`` is
    a labelled set (.npz), ``calib`` the items by which int8 is calibrated; ``metric`` (top1).
    """

    model: Annotated[str, Field(min_length=1)]
    label: str = ""
    seed: Seed = 0
    checkpoint: str = ""
    pretrained: bool = False
    args: dict[str, Any] = Field(default_factory=dict)
    inputs: dict[str, InputEntry] = Field(default_factory=dict)
    inputs_file: str = ""
    eval: str = ""
    metric: str = ""
    calib: str = ""


Model = Annotated[ModelEntry, BeforeValidator(_model_entry)]


class Measure(_Entry):
    """How to measure. ``threads`` is a number, the same for all; ``auto``: what the device
    offers; or ``vendor-default``: each compiler does as it is shipped. The rest is laid
    out as ``case.Method``; ``beside`` is a model.
    """

    profile: Annotated[str, _choice(*PROFILES)] = "default"
    threads: Annotated[int | Literal["auto", "vendor-default"], BeforeValidator(threads_entry)] = (
        "auto"
    )
    mode: Annotated[str, _choice(*MODES)] = "sync"
    claim: Annotated[str, _choice(*CLAIMS)] = "auto"
    best: bool = False
    tails: Seconds | None = None
    rate: Annotated[float, BeforeValidator(rate_entry)] | None = None
    in_flight: InFlight | None = None
    sustained: Annotated[float, BeforeValidator(sustained_entry)] | None = None
    beside: Annotated[str, Field(min_length=1)] | None = None


class LimitsEntry(_Entry):
    """The limits as written; ``Experiment.limits`` holds what they mean."""

    first_call: Seconds = Limits().first_call_s
    compile: Seconds = Limits().compile_s
    cell: Seconds = Limits().cell_s
    memory: Bytes = Limits().memory_bytes


class Experiment(_Entry):
    """Everything one run is asked to do. ``model_dump()`` gives it back as it is written.

    ``baseline`` None leaves the choice to the plan. ``shapes`` maps an input to shapes
    that are taken in step with those of other inputs.
    """

    name: Annotated[str, AfterValidator(name_entry)]
    models: Annotated[list[Model], AfterValidator(_not_empty)]
    compilers: Annotated[list[Compiler], AfterValidator(_not_empty)]
    sweep: dict[str, dict[str, Annotated[list[Setting], AfterValidator(_unique)]]] = Field(
        default_factory=dict
    )
    devices: Annotated[list[str], AfterValidator(_unique)] = Field(
        default_factory=lambda: ["local"]
    )
    batch_sizes: Annotated[list[Positive], AfterValidator(_unique)] = Field(
        default_factory=lambda: [1, 8]
    )
    shapes: dict[
        str, Annotated[list[Shape], BeforeValidator(_shape_list), AfterValidator(_not_empty)]
    ] = Field(default_factory=dict)
    precision: Annotated[
        list[Annotated[str, _choice(*PRECISIONS)]],
        BeforeValidator(_listed),
        AfterValidator(_unique),
    ] = Field(default_factory=lambda: ["fp32"])
    baseline: Annotated[str, AfterValidator(_baseline)] | None = "eager"
    control: Annotated[str, _choice("same-graph")] | None = None
    interleave: Annotated[list[Annotated[str, _choice(*AXES)]], AfterValidator(_unique)] = Field(
        default_factory=lambda: ["compiler", "batch"]
    )
    measure: Measure = Field(default_factory=Measure)
    limits: Annotated[Limits, BeforeValidator(_limits), PlainSerializer(_limits_as_written)] = (
        Limits()
    )
    environments: Annotated[str, _choice("current", "managed")] = "current"
    seed: Seed = 0
    _document: Document = PrivateAttr(default_factory=lambda: Document({}))

    def error(self, message: str, keys: Keys, *, reason: str = "", hint: str = "") -> SpecError:
        """Return a SpecError that names file, line and key of what stands at ``keys``."""
        document = self._document
        keys = document.written(keys) or keys[:1]
        return document.error(message, keys, reason=reason, hint=hint)

    @model_validator(mode="after")
    def _check_together(self) -> Experiment:
        problems = [*_sweep_problems(self), *_shape_problems(self), *_label_problems(self)]
        if "compiler" not in self.interleave:
            problems.append(
                (("interleave",), "must hold compiler: compilers are compared side by side")
            )
        for i, entry in enumerate(self.models):
            if entry.pretrained and entry.checkpoint:
                message = "takes pretrained or checkpoint, not both"
                problems.append((("models", i, "checkpoint"), message))
        if problem := claim_problem(self.measure.claim, PROFILES[self.measure.profile]):
            problems.append((("measure", "claim"), problem))
        if problems:
            details = [
                InitErrorDetails(
                    type=PydanticCustomError("together", cast(Any, message)),
                    loc=keys,
                    input=None,
                )
                for keys, message in problems
            ]
            raise ValidationError.from_exception_data("Experiment", details)
        return self


Problems = list[tuple[Keys, str]]


def _sweep_problems(experiment: Experiment) -> Problems:
    problems: Problems = []
    heads = sorted({name for spec in experiment.compilers for name in (spec.name, spec.head)})
    for head, options in experiment.sweep.items():
        listed = [spec for spec in experiment.compilers if head in (spec.name, spec.head)]
        if not listed:
            message = f"{head!r} is not among the compilers. {nearest(head, heads)}"
            problems.append((("sweep", head), message))
        problems.extend(
            (("sweep", head, name), f"option {name!r} is also given in {spec.text!r}: keep one")
            for name in options
            for spec in listed
            if name in spec.options
        )
        if not options:
            problems.append((("sweep", head), "names no option"))
    return problems


def _shape_problems(experiment: Experiment) -> Problems:
    counts = {name: len(shapes) for name, shapes in experiment.shapes.items()}
    several = {count for count in counts.values() if count > 1}
    if len(several) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        return [(("shapes",), f"inputs change shape in step, so need equally many: {listed}")]
    rows = list(zip(*_in_step(experiment.shapes), strict=True))
    if len({str(row) for row in rows}) < len(rows):
        return [(("shapes",), "holds the same combination of shapes twice")]
    return []


def _in_step(shapes: Mapping[str, list[list[int | str]]]) -> list[list[list[int | str]]]:
    count = max(map(len, shapes.values()), default=1)
    return [list(given) * (count if len(given) == 1 else 1) for given in shapes.values()]


def shape_combinations(experiment: Experiment) -> list[dict[str, list[int | str]]]:
    """Return the shapes to measure, one mapping of inputs per case; [{}] when none are given."""
    if not experiment.shapes:
        return [{}]
    rows = zip(*_in_step(experiment.shapes), strict=True)
    return [dict(zip(experiment.shapes, row, strict=True)) for row in rows]


def _label_problems(experiment: Experiment) -> Problems:
    labels = [entry.label for entry in experiment.models]
    return [
        (("models", i, "label"), f"{label!r} already names another model")
        for i, label in enumerate(labels)
        if label and label in labels[:i]
    ]


_SECTIONS: dict[str, type[BaseModel]] = {"measure": Measure, "limits": LimitsEntry}
_ELSEWHERE = {
    name: f"{section}.{name}" for section, model in _SECTIONS.items() for name in model.model_fields
} | {"batch": "batch_sizes", "batches": "batch_sizes", "timeout": "limits.cell"}


def _fields(keys: Keys) -> list[str]:
    """Return the valid keys of the mapping at a path of the experiment file."""
    model: type[BaseModel] = Experiment
    if keys and keys[0] == "models":
        model = InputEntry if len(keys) > 2 else ModelEntry
    elif keys:
        model = _SECTIONS[str(keys[0])]
    return list(model.model_fields)


def load_experiment(path: Path, *, overrides: Sequence[str] = ()) -> Experiment:
    """Return the experiment in a YAML 1.2 file, with ``key.sub=value`` overrides applied.

    Raises one SpecError for everything found wrong, a line each, with file, line, key and
    the nearest valid key or choice.
    """
    return _validated(read_document(path, overrides=overrides))


def build_experiment(data: Mapping[str, Any], *, source: str = "") -> Experiment:
    """Return the experiment in ``data``, laid out as in a file; ``source`` names it in errors.

    Raises SpecError like ``load_experiment``.

    >>> build_experiment({"name": "x", "models": ["a.onnx"], "compilers": ["openvino"]}).seed
    0
    """
    return _validated(Document(dict(data), file=source))


def _validated(document: Document) -> Experiment:
    try:
        experiment = Experiment.model_validate(document.data)
    except ValidationError as error:
        raise spec_error(error, document, fields=_fields, elsewhere=_ELSEWHERE) from error
    experiment._document = document
    return experiment
