"""The calibration in docs/inspector.md matches the measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import calibration_picture
from tools.calibration_picture import Group, Value


@pytest.mark.parametrize("path", calibration_picture.files(), ids=lambda path: path.name)
def test_page_and_pictures_are_those_of_the_values(path: Path) -> None:
    assert path.read_text() == calibration_picture.files()[path], "python -m tools.calibration_picture"


def test_groups_hold_every_value_once() -> None:
    values = [Value(i / 100, i % 2 == 0) for i in range(100)]
    parts = calibration_picture.groups(values)
    assert [value for part in parts for value in part.values] == values
    assert {len(part.values) for part in parts} == {12, 13}


def test_the_error_of_a_model_that_is_as_right_as_it_is_sure_is_none() -> None:
    honest = Group([Value(0.75, right) for right in (True, True, True, False)])
    boaster = Group([Value(1.0, right) for right in (True, False)])
    assert calibration_picture.error([honest]) == 0 and calibration_picture.error([honest, boaster]) == 1 / 6
    low, high = boaster.interval
    assert 0.09 < low < 0.1 and 0.9 < high < 0.91
