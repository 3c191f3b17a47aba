"""Traces: those that come with the package, and files that are wrong."""

from pathlib import Path

import pytest

from trilithon.errors import FileUnreadable, InvalidLoad
from trilithon.workloads.trace import load, loads, names


def test_two_days_come_with_the_package() -> None:
    assert names() == ["day_two_hourly", "epa_http_hourly"]
    assert [len(load(name)) for name in names()] == [24, 24]
    assert load("epa_http_hourly") != load("day_two_hourly")


WRONG = {
    "a gap": ("h,v\n0,1\n2,5\n", "3: row 2 comes where 1 should"),
    "a row twice": ("h,v\n0,1\n0,5\n", "3: row 0 comes where 1 should"),
    "nothing where a rate should be": ("h,v\n0,1\n1,\n", "3: '' is not a number"),
    "a negative rate": ("h,v\n0,-1\n", "2: a rate of -1 is negative"),
    "text": ("h,v\n0,many\n", "2: 'many' is not a number"),
    "not a number": ("h,v\n0,nan\n", "2: 'nan' is not a number"),
    "infinite": ("h,v\n0,1\n1,inf\n", "3: 'inf' is not a number"),
    "an hour that is none": ("h,v\nnoon,1\n", "2: 'noon' is not a row's number"),
    "half an hour": ("h,v\n0.5,1\n", "2: '0.5' is not a row's number"),
    "one column": ("h,v\n0,1\n1\n", "3: a row has 1 columns"),
    "an empty line": ("h,v\n0,1\n\n2,1\n", "3: a row has 0 columns"),
    "no heading": ("0,1\n1,2\n", "1: the heading is missing"),
    "no rows": ("h,v\n", "1: no row has a rate above 0"),
    "nothing": ("", "1: no row has a rate above 0"),
    "only zeros": ("h,v\n0,0\n1,0\n", "1: no row has a rate above 0"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_trace_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidLoad) as refused:
        loads(text, "day.csv")
    assert f"day.csv:{message}" in refused.value.message
    assert refused.value.hint


def test_a_file_may_begin_at_any_number_and_have_the_marks_of_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_bytes("\ufeffhour,requests\r\n7,1\r\n8,0\r\n9,2.5\r\n".encode())
    assert load(str(path)) == [1, 0, 2.5]


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("none", "binary", "."):
        with pytest.raises(FileUnreadable, match="epa_http_hourly"):
            load(str(tmp_path / name))
