"""Where a query goes wrong, shown without the texts in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from empriv.collecting.sql.printing import listed, misspelt_keyword, nearest, pointed, unclosed


def test_a_caret_stands_below_its_column() -> None:
    assert pointed("SELECT x\nFROM data", 2, 6) == "\n  FROM data\n       ^"
    assert pointed("SELECT x", 2, 1) == ""  # there is no second line


@pytest.mark.slow
@settings(max_examples=30)
@given(st.text(st.characters(exclude_characters="'\n\t"), min_size=2, max_size=20), st.booleans(), st.booleans())
def test_no_text_of_a_query_is_shown(secret: str, closed: bool, remark: bool) -> None:
    secret = f"<{secret}>"  # so that it is not found elsewhere by chance
    query = f"SELECT sum(x) {'-- isn' + chr(39) + 't so' if remark else ''}\nFROM data WHERE who = '{secret}"
    query += "'" if closed else ""
    shown = pointed(query, 2, 6)
    assert secret not in shown
    assert shown.splitlines()[1].startswith("  FROM data WHERE who = '")


def test_long_numbers_are_not_shown_and_short_ones_are() -> None:
    assert "98765" not in pointed("SELECT 12 FROM data WHERE who = 98765", 1, 1)
    assert "12" in pointed("SELECT 12 FROM data WHERE who = 98765", 1, 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = 'x'", None),
        ("a = 'it''s'", None),
        ("-- isn't\na = 'x'", None),
        ("/* isn't */ a", None),
        ("a\n  = 'x", ("'", 2, 5)),
        ('sum("Total Amount) FROM data', ('"', 1, 5)),
    ],
)
def test_a_quote_that_is_not_closed_is_found(text: str, found: tuple[str, int, int] | None) -> None:
    assert unclosed(text) == found


def test_names_are_near_apart_from_case_spaces_and_underscores() -> None:
    assert nearest("client_id", ["Day", "Client ID"]) == ". Hint: did you mean 'Client ID'?"
    assert nearest("person", ["day", "amount"]) == "."
    assert misspelt_keyword("SELECT x FORM data", 1, 18) == "'FORM' be FROM"
    assert misspelt_keyword("SELECT x FROM data", 1, 18) is None


def test_many_names_are_not_all_listed() -> None:
    assert listed("ab") == "'a', 'b'"
    assert listed(map(str, range(20))).endswith("'11' and 8 more")
