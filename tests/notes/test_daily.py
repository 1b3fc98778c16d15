"""Daily notes: formats, settings, templates."""

from datetime import UTC, datetime

import pytest

from notewright.notes.daily import DailySettings, daily_path, fill_template, format_moment, parse_daily_settings

MOMENT = datetime(2024, 2, 29, 13, 5, 7, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("YYYY-MM-DD", "2024-02-29"),
        ("dddd, MMMM Do YYYY", "Thursday, February 29th 2024"),
        ("[Week] w [of] gggg", "Week 9 of 2024"),
        ("GGGG-[W]WW-E", "2024-W09-4"),
        ("DDDD Qo wo do", "060 1st 9th 4th"),
        ("H:m h:mm a A kk", "13:5 1:05 pm PM 13"),
        ("SSS S X", "123 1 1709211907"),
        ("LL | LT | l", "February 29, 2024 | 1:05 PM | 2/29/2024"),
        ("ZZ Z", "+0000 +00:00"),
        ("\\Y [a[b] [c] D] é", "Y [pmb c] D é"),
        ("YYYYYY Y YY", "+002024 2024 24"),
    ],
)
def test_formats_are_those_of_moment(form: str, written: str) -> None:
    assert format_moment(form, MOMENT) == written


@pytest.mark.parametrize(
    ("day", "written"),
    [("2021-01-01", "2021-01 2020-53"), ("2023-01-01", "2023-01 2022-52"), ("2020-12-31", "2021-01 2020-53")],
)
def test_weeks_begin_on_sunday_or_on_monday(day: str, written: str) -> None:
    assert format_moment("gggg-ww GGGG-WW", datetime.fromisoformat(day)) == written


def test_ordinals() -> None:
    days = [format_moment("Do", datetime(2024, 1, day)) for day in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 31)]
    assert days == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "31st"]


def test_slashes_make_folders() -> None:
    assert daily_path(DailySettings("Journal", "YYYY/MM/DD"), MOMENT) == "Journal/2024/02/29.md"
    assert daily_path(DailySettings(), MOMENT) == "2024-02-29.md"
    assert daily_path(DailySettings("a//", "/YYYY/"), MOMENT) == "a/2024.md"


def test_settings_are_read_as_far_as_they_make_sense() -> None:
    assert parse_daily_settings('{"folder": "/J/", "format": "YYYY", "template": "T"}') == DailySettings(
        "J", "YYYY", "T"
    )
    assert parse_daily_settings('{"folder": 3}') == DailySettings()
    assert parse_daily_settings("[]") is None
    assert parse_daily_settings("{") is None
    assert parse_daily_settings("[" * 100_000) is None
    assert parse_daily_settings('"' + "x" * 70_000 + '"') is None


def test_a_template_is_filled() -> None:
    text = "# {{title}} {{date}} {{time}} {{date:DD.MM.}} {{Date}} {{other}}"
    assert fill_template(text, title="T", moment=MOMENT) == "# T 2024-02-29 13:05 29.02. 2024-02-29 {{other}}"
