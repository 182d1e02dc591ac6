"""Settings: what is written is read again, what is wrong is refused by name."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from empriv.cli.config import Settings, read_config, settings_of, to_toml
from empriv.errors import InputError

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.builds(
        Settings,
        files=st.lists(text, min_size=1).map(tuple),
        database=st.none() | text,
        individual=st.lists(text, min_size=1).map(tuple),
        query=st.lists(text, min_size=1).map(tuple),
        epsilon=st.lists(st.floats(0, 1e9), min_size=1).map(tuple),
        density=text,
        unidentified=st.sampled_from(["error", "keep", "drop"]),
        component=st.none() | text,
        target=st.lists(st.sampled_from(["delta <= 0.1 at 1", "total_risk <= 0.2 at 2"])).map(tuple),
        show_ids=st.booleans(),
        top=st.integers(0, 10**6),
        quiet=st.booleans(),
        tables=st.dictionaries(text, text),
    )
)
def test_what_is_written_is_read_again(tmp_path: Path, made: Settings) -> None:
    (tmp_path / "audit.toml").write_text(to_toml(made), encoding="utf-8", newline="")
    assert settings_of(read_config(tmp_path / "audit.toml"), {}) == made


def test_what_is_given_wins_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text('query = "sum(x)"\nquiet = true\nindividual = "a,b"\n[tables]\na = "a.csv"\n')
    made = settings_of(read_config(path), {"query": ("avg(x)",), "tables": {"b": "b.csv"}, "quiet": None, "top": 3})
    assert made == Settings(query=("avg(x)",), tables={"b": "b.csv"}, quiet=True, top=3, individual=("a,b",))


def test_every_setting_is_documented_and_can_be_read() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "pipeline.md").read_text(encoding="utf-8")
    example = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    assert set(example) == {one.name for one in fields(Settings)} == set(asdict(Settings()))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('qurey = "x"', "known keys only, got 'qurey'. Hint: did you mean 'query'?"),
        ("colour = 1", "Hint: known keys are files,"),
        ("query = 3", "`query` must be a text or a list of texts, got int"),
        ('query = ""', "`query` must be a text, got an empty one"),
        ("files = []", "`files` must be a text or a list of texts"),
        ("files = [1]", "`files` must be a text"),
        ("epsilon = -1", "`epsilon` must be numbers of at least 0, got -1"),
        ("epsilon = nan", "`epsilon` must be numbers of at least 0"),
        ("epsilon = true", "`epsilon` must be numbers of at least 0"),
        ("epsilon = []", "at least one number"),
        ('top = "5"', "`top` must be an integer"),
        ("quiet = 1", "`quiet` must be true or false"),
        ('unidentified = "skip"', "`unidentified` must be valid: 'skip' is not one of 'error', 'keep', 'drop'"),
        ("top = -1", "`top` must be valid: -1 is not in the range"),
        ('target = "delta"', "`target` must read like"),
        ('tables = "a.csv"', "`tables` must be a table"),
        ("[tables]\na = 1", "`tables.a` must be a text"),
        ("query = ", "`config` must be TOML"),
        (f"timeout = {'9' * 400}", "an integer has more than 64 bits"),
        (f"epsilon = [0.1, {'9' * 400}]", "an integer has more than 64 bits"),
        ("timeout = 1e7", "`timeout` must be a number of seconds above 0, up to a million"),
        (f"files = {'[' * 3000}{']' * 3000}", "`config` must be TOML"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "audit.toml").write_text(content)
    with pytest.raises(InputError) as caught:
        read_config(tmp_path / "audit.toml")
    assert words in str(caught.value)
    assert "audit.toml" in str(caught.value)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got 'none\.toml': No such file"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\x00")
    with pytest.raises(InputError, match="`config` must be TOML"):
        read_config(tmp_path / "binary.toml")
