from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ngraphbench.report.wording import figure, quantity, shorten, visible


@given(st.text())
def test_nothing_acts_on_the_screen(text: str) -> None:
    shown = visible(text)
    assert len(shown) == len(text)
    assert shown.isprintable()
    shown.encode("utf-8")


def test_controls_are_pictured() -> None:
    assert visible("a\x1b]0;x\x07\n\x7f\x9b\u202e\u200b\ud800") == "a␛]0;x␇␊␡" + "\ufffd" * 4
    assert visible("a\nb", keep="\n") == "a\nb"


@given(st.sets(st.text(st.characters(codec="ascii"), min_size=1), max_size=30), st.integers(4, 20))
def test_short_labels_stay_apart(labels: set[str], width: int) -> None:
    short = shorten(labels, width)
    assert len(set(short.values())) == len(labels)
    assert all(len(value) <= width for value in short.values())


def test_labels_that_fit_are_left_alone() -> None:
    assert shorten(["eager", "openvino"], 8) == {"eager": "eager", "openvino": "openvino"}


def test_figures() -> None:
    values = (1240.4, 63.21, 1.234, 0.51234, float("nan"), None)
    assert [figure(value) for value in values] == ["1,240", "63.2", "1.23", "0.512", "–", "–"]


def test_quantities_have_units() -> None:
    assert quantity("compile_cold_s", 4.2) == "4.20 s"
    assert quantity("peak_rss_bytes", 0) == "0 B"
    assert quantity("runs_until_steady", 3) == "3"
    assert quantity("load_s", None) == "–"
