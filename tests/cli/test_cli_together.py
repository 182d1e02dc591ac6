"""The command line, from the rows to a release: several queries, what readers know, reports, noise, the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

import empriv
from cli.conftest import Run
from empriv.cli.options import split_at_commas

pytestmark = pytest.mark.slow

SOURCE = ("sales.csv", "--database", "day", "--individual", "client")
QUIET = ("--epsilon", "1", "--quiet")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sales.csv."""
    folder = tmp_path_factory.mktemp("sales")
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "day": np.repeat(np.arange(60), 6),
            "client": [f"secret{k}" for k in range(6)] * 60,
            "amount": rng.lognormal(1, 0.6, 360).round(2),
        }
    )
    table[rng.random(360) < 0.9].to_csv(folder / "sales.csv", index=False)
    return folder


def test_several_queries_are_audited_together(run: Run) -> None:
    shown = run("audit", *SOURCE, "--query", "sum(amount)", "--query", "count(*)", "--epsilon", "1", "--json", "-")
    figures = json.loads(shown.stdout)
    data = empriv.databases("sales.csv", database="day", individual="client")
    audit = empriv.audit(data, ["sum(amount)", "count(*)"], epsilon=1.0)
    assert figures["figures"][0]["delta"] == audit.delta(1.0)
    assert figures["joint"]["dimension"] == 2
    alone = [part.delta(1.0) for part in audit.components.values()]
    assert figures["figures"][0]["delta"] >= max(alone)


class TestKnown:
    def test_figures_are_those_given_what_is_known(self, run: Run) -> None:
        data = empriv.databases("sales.csv", database="day", individual="client")
        for options, known in (
            (("--known", "count(*),unordered"), ("count(*)", "unordered")),
            (("--known", "buckets:count(*)"), empriv.Buckets("count(*)")),
            (("--known", "own"), empriv.OwnContribution()),
        ):
            shown = run("audit", *SOURCE, "--query", "sum(amount)", "--epsilon", "1", *options, "--json", "-")
            figures = json.loads(shown.stdout)
            audit = empriv.audit(data, "sum(amount)", epsilon=1.0, known=known)
            assert audit.against is not None
            assert figures["figures"][0]["delta"] == audit.delta(1.0) == audit.against.delta(1.0)
            assert figures["known"]["delta_knowing_nothing"] == [audit.risk.delta(1.0)]
            assert figures["bounds"][0]["upper"] == audit.bounds(1.0).upper

    def test_it_is_saved_and_loaded(self, run: Run) -> None:
        run("audit", *SOURCE, "--query", "sum(amount)", *QUIET, "--known", "count(*)", "--save", "a.empriv")
        again = empriv.load("a.empriv")
        assert isinstance(again, empriv.Audit)
        data = empriv.databases("sales.csv", database="day", individual="client")
        audit = empriv.audit(data, "sum(amount)", epsilon=1.0, known="count(*)")
        np.testing.assert_array_equal(again.delta_i([0.5, 1.0]), audit.delta_i([0.5, 1.0]))
        assert again.to_json() == audit.to_json()

    def test_commas_inside_sql_stay(self) -> None:
        text = "calendar, coalesce(sum(x), 0),max(x[1, 2]) , count(*) FILTER (WHERE who = 'a,b)')"
        assert split_at_commas(text) == [
            "calendar", "coalesce(sum(x), 0)", "max(x[1, 2])", "count(*) FILTER (WHERE who = 'a,b)')",
        ]  # fmt: skip
        assert split_at_commas(" , ") == []

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--known", "own", "--known", "count(*)"), "`known` must be own alone"),
            (("--known", "buckets:count(*),calendar"), "`known` must be buckets alone"),
            (("--known", "nothing,calendar"), "`known` must be nothing alone"),
            (("--known", "previous:0"), "`known` must name a whole number of answers"),
            (("--known", "calendar", "--paper"), "`paper` must not be given with `known`"),
        ],
    )
    def test_what_does_not_go_together(self, run: Run, options: tuple[str, ...], words: str) -> None:
        assert words in run("audit", *SOURCE, "--query", "sum(amount)", *options, code=2).output


class TestLedger:
    NOISE = ("--epsilon", "1", "--delta", "0", "--method", "classical", "--granularity", "0.015625", "--quiet")

    def released(self, run: Run, query: str, name: str, *, code: int = 0) -> Result:
        """Audit, design, release the answer of day 3, all through the ledger."""
        run("audit", *SOURCE, "--query", query, *QUIET, "--ledger", "a.ledger", "--save", f"{name}.empriv")
        run("noise", f"{name}.empriv", *self.NOISE, "--save", f"{name}.noise.empriv")
        return run(
            "release", f"{name}.noise.empriv", "--audit", f"{name}.empriv", "--ledger", "a.ledger", "--database", "3",
            code=code,
        )  # fmt: skip

    def test_the_same_release_gives_the_same_answer(self, run: Run) -> None:
        run("ledger", "init", "a.ledger", "--epsilon", "2", "--delta", "0.5")
        first = self.released(run, "sum(amount)", "a")
        again = run(
            "release", "a.noise.empriv", "--audit", "a.empriv", "--ledger", "a.ledger", "--database", "3"
        )  # fmt: skip
        assert first.stdout == again.stdout
        assert "Released before" in again.stderr
        assert float(first.stdout) * 64 == int(float(first.stdout) * 64)
        assert 'sum("amount")' in run("ledger", "list", "a.ledger").output.lower()
        assert "intact" in run("ledger", "verify", "a.ledger").output.lower()

    def test_a_release_that_breaks_the_policy_is_refused(self, run: Run) -> None:
        run("ledger", "init", "a.ledger", "--queries", "1")
        self.released(run, "sum(amount)", "a")
        refused = self.released(run, "SELECT sum(amount) FROM data WHERE client <> 'secret0'", "b", code=3)
        assert "Refused" in refused.stderr
        assert "above the limit of 1 query" in refused.stderr
        assert refused.stdout == ""

    def test_wrong_usage(self, run: Run) -> None:
        run("audit", *SOURCE, "--query", "sum(amount)", *QUIET, "--save", "a.empriv")
        run("noise", "a.empriv", *self.NOISE, "--save", "n.empriv")
        assert "Give --value" in run("release", "n.empriv", code=2).output
        assert "together" in run("release", "n.empriv", "--value", "1", "--ledger", "a.ledger", code=2).output
        missing = run("release", "n.empriv", "--audit", "a.empriv", "--ledger", "no.ledger", "--database", "3", code=1)
        assert "no.ledger" in missing.output
        assert not Path("no.ledger").exists()
        assert "must be a number" in run("release", "n.empriv", "--value", "-", text="many\n", code=1).output
        assert "`empriv noise --save`" in run("release", "a.empriv", "--value", "1", code=1).output
        assert float(run("release", "n.empriv", "--value", "-", text="12.5\n").stdout) % 0.015625 == 0


def test_noise_for_several_numbers(run: Run) -> None:
    run("audit", *SOURCE, "--query", "sum(amount)", "--query", "count(*)", *QUIET, "--save", "a.empriv")
    shown = run("noise", "a.empriv", "--epsilon", "1", "--granularity", "0.015625", "--save", "n.empriv").output
    assert "2 numbers together" in shown
    assert "Upper bound on delta with it: 0 at epsilon 1" in shown
    one, other = map(float, run("release", "n.empriv", "--database", "3").stdout.split())
    assert one * 64 == int(one * 64)
    assert other * 64 == int(other * 64)
    loaded = empriv.load("n.empriv")
    assert isinstance(loaded, empriv.TableNoise)
    names = list(loaded.laws)
    given = run("release", "n.empriv", "--value", f"{names[0]}=3", "--value", f"{names[1]}=4").stdout
    assert len(given.split()) == 2
    assert "NAME=V" in run("release", "n.empriv", "--value", "3", code=2).output
    assert "take only --epsilon" in run("noise", "a.empriv", "--epsilon", "1", "--dither", code=2).output


@pytest.mark.slow
def test_noise_for_a_table_whose_cells_add_up(run: Run) -> None:
    parts = "sum(greatest(amount - 2, 0)) AS high, sum(least(amount, 2)) AS low"
    run("audit", *SOURCE, "--query", f"SELECT sum(amount) AS total, {parts} FROM data", *QUIET, "--save", "t.empriv")
    asked = ("--epsilon", "1", "--delta", "0.1", "--granularity", "0.015625", "--consistent")
    shown = run("noise", "t.empriv", *asked, "--save", "t-noise.empriv").output
    assert "Upper bound on delta with it" in shown
    assert "add up again" in shown
    total, high, low = map(float, run("release", "t-noise.empriv", "--database", "3").stdout.split())
    assert total == pytest.approx(high + low)
