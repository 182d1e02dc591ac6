"""One class is a kind of risk: all else that an audit has follows from it. And every kind can be sent elsewhere."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import empriv
from empriv.auditing.summary import with_validity
from empriv.errors import InputError
from empriv.measuring import AnyRisk
from empriv.results import FloatArray, Results
from empriv.validate.checks import checks

GRID = np.array([0.0, 0.05, 0.2, 1.0])


@dataclass(frozen=True, eq=False)
class ThresholdRisk(AnyRisk):
    """What is told by whether a result is above a threshold, and by nothing else: a kind of risk in one class."""

    results: Results
    threshold: float

    def shares(self) -> tuple[float, FloatArray]:
        """Share of the results above the threshold: with everyone, and without each individual."""
        above = self.results.q > self.threshold
        changed = (self.results.entry_q > self.threshold).astype(float) - above[self.results.entry_database]
        owner = np.repeat(np.arange(self.results.n_individuals), self.results.presence)
        n = self.results.n_databases
        return above.mean(), above.mean() + np.bincount(owner, changed, self.results.n_individuals) / n

    def curves(self, epsilons: FloatArray) -> FloatArray:
        share, without = self.shares()
        a, b, factor = np.array([share, 1 - share]), np.stack((without, 1 - without), axis=1), np.exp(epsilons)
        one = np.maximum(a[None, :, None] - factor * b[:, :, None], 0).sum(axis=1)
        other = np.maximum(b[:, :, None] - factor * a[None, :, None], 0).sum(axis=1)
        return np.maximum(one, other)


def results(n: int = 60, m: int = 7, components: int = 1, seed: int = 3) -> Results:
    rng = np.random.default_rng(seed)
    rows = rng.lognormal(size=(m, n, components)) * np.linspace(0.2, 2.0, m)[:, None, None]
    q = rng.normal(10, 3, size=(n, components)) + rows.sum(axis=0)
    parts = [Results.from_arrays(q[:, k], q[None, :, k] - rows[:, :, k]) for k in range(components)]
    return parts[0] if components == 1 else Results.stack({f"number {k}": part for k, part in enumerate(parts)})


@pytest.fixture(scope="module")
def risk() -> ThresholdRisk:
    made = results()
    return ThresholdRisk(made, float(np.median(made.q)))


@pytest.fixture(scope="module")
def audit(risk: ThresholdRisk) -> empriv.Audit:
    return empriv.Audit(
        results=risk.results, risk=risk, epsilons=(0.05, 0.2), query="Is it much?", origin=None, density=empriv.Kde()
    )


def test_figures_follow_from_the_curves(risk: ThresholdRisk) -> None:
    delta_i = risk.delta_i(GRID)
    np.testing.assert_array_equal(delta_i[:, 0], np.abs(risk.shares()[1] - risk.shares()[0]), "at 0 it is the change")
    np.testing.assert_array_equal(risk.delta(GRID), delta_i.max(axis=0))
    np.testing.assert_allclose(risk.total_risk(GRID), 1 - np.prod(1 - delta_i, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(risk.exposed(GRID), np.count_nonzero(delta_i, axis=0))
    np.testing.assert_array_equal(risk.delta_i(GRID[::-1]), delta_i[:, ::-1], "in any order")
    np.testing.assert_array_equal(risk.delta_i([0.2, 0.2]), delta_i[:, [2, 2]], "and twice")
    for epsilon, column in zip(GRID.tolist(), delta_i.T, strict=True):
        np.testing.assert_array_equal(risk.delta_i(epsilon), column)
        assert isinstance(risk.delta(epsilon), float)
        assert isinstance(risk.total_risk(epsilon), float)
        assert risk.delta(epsilon) == column.max()


def test_a_curve_is_computed_once_and_cannot_be_spoilt(risk: ThresholdRisk) -> None:
    asked: list[FloatArray] = []

    class Counting(ThresholdRisk):
        def curves(self, epsilons: FloatArray) -> FloatArray:
            asked.append(epsilons)
            return super().curves(epsilons)

    counting = Counting(risk.results, risk.threshold)
    counting.delta_i(GRID)[:] = 7.0
    assert counting.delta(GRID).max() < 1
    counting.total_risk(GRID)
    assert len(asked) == 1
    assert counting.delta(GRID[0]) == counting.delta(GRID)[0]  # the first of a grid was looked at as if it were alone
    assert len(asked) == 1
    counting.delta([0.3, 0.1, 0.3])
    np.testing.assert_array_equal(asked[1], [0.1, 0.3], "rising and different")
    assert counting.delta(0.3) == ThresholdRisk(risk.results, risk.threshold).delta(0.3)
    assert len(asked) == 3


def test_the_first_of_a_grid_is_as_if_asked_alone() -> None:
    """So that it need not be computed again."""
    made, several = results(), results(components=2)
    cells = results(components=3)

    def kinds() -> list[AnyRisk]:
        line, table = empriv.measure(made), empriv.measure(cells)
        buckets = empriv.measure(made, known=empriv.Buckets(np.random.default_rng(1).normal(size=60), 2))
        given = empriv.measure(made, known=empriv.Given(np.random.default_rng(1).normal(size=60)))
        return [line, empriv.measure(several), table, buckets, given, line.repeated(20)]

    for together, alone in zip(kinds(), kinds(), strict=True):
        first = together.delta_i([0.1, 0.3, 1.0])[:, 0]
        np.testing.assert_allclose(first, alone.delta_i(0.1), rtol=1e-9, atol=1e-12)


def test_inverses_are_from_above_and_exact(risk: ThresholdRisk) -> None:
    share, without = risk.shares()
    exact = np.maximum(np.abs(np.log(share / without)), np.abs(np.log((1 - share) / (1 - without))))
    smallest = risk.epsilon_i(0.0)
    np.testing.assert_allclose(smallest, exact, atol=1e-12)
    assert risk.epsilon(0.0) == smallest.max()
    for delta in (0.01, 0.05, 1.0):
        smallest = risk.epsilon_i(delta)
        reached = np.array([risk.delta_i(epsilon)[k] for k, epsilon in enumerate(smallest.tolist())])
        assert np.all(reached <= delta)
        assert risk.epsilon(delta) == smallest.max()
    assert risk.epsilon(1.0) == 0.0
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(risk.epsilon_i(0.05), exact, atol=1e-3)


def test_whoever_is_never_private_has_no_epsilon() -> None:
    certain = Results.from_arrays([0.0, 0.0, 1.0], [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(ThresholdRisk(certain, 0.5).epsilon_i(0.0), [np.inf, 0.0])
    assert ThresholdRisk(certain, 0.5).epsilon(0.1) == np.inf
    assert ThresholdRisk(certain, 0.5).epsilon(0.4) == 0.0


@pytest.mark.parametrize("epsilon", [-0.1, float("nan"), [[0.1]], [], "much"])
def test_what_is_no_epsilon_is_refused(risk: ThresholdRisk, epsilon: object) -> None:
    for ask in (risk.delta, risk.delta_i, risk.total_risk, risk.bounds):
        with pytest.raises(InputError, match="`epsilon`"):
            ask(epsilon)  # type: ignore[operator]


def test_bounds_checks_and_verdict_promise_nothing_unknown(risk: ThresholdRisk, audit: empriv.Audit) -> None:
    bounded = risk.bounds(GRID)
    np.testing.assert_array_equal(bounded.estimate, risk.delta(GRID))
    assert np.all(bounded.upper == 1)
    assert np.all(bounded.lower == 0)
    assert "No upper bound is known for this kind of risk" in bounded.notes[0]
    assert {check.code for check in checks(risk, 0.1)} == {"iid", "databases", "ties"}
    assert audit.verdict(epsilon=0.05, delta=0.999) == "unresolved"
    assert audit.verdict(epsilon=0.05, delta=0.999, basis="estimate") == "pass"
    assert audit.verdict(epsilon=0.05, delta=1e-9) == "unresolved"
    assert audit.verdict(epsilon=0.05, delta=1e-9, basis="estimate") == "fail"


def test_an_audit_of_it_is_told_as_any(audit: empriv.Audit, tmp_path: Path) -> None:
    assert audit.delta(0.05) == audit.risk.delta(0.05)
    table = audit.individuals(0.05, top=3)
    assert table["delta_i"].tolist() == sorted(audit.delta_i(0.05), reverse=True)[:3]
    assert audit.components == {}
    said = with_validity(audit, audit.summary())
    assert said.asked.startswith("Is it much? was asked of 60 databases")
    assert any("No upper bound is known" in note for note in said.notes)
    assert not any(note.startswith("Density") or "no density" in note for note in said.notes)
    figures = json.loads(json.dumps(audit.to_json(), allow_nan=False))
    assert figures["figures"][0]["delta"] == audit.delta(0.05)
    assert figures["density"]["model"] is None
    assert said.sentences[0] in str(audit)
    written = audit.report(tmp_path / "page.html")
    page = written.page.read_text()
    assert "Is it much?" in page
    assert said.asked in page
    assert audit.chart("delta").name == "delta"
    with pytest.raises(InputError, match="nothing to draw"):
        audit.chart("density")


def test_several_numbers_need_nothing_more() -> None:
    together = results(components=2)

    @dataclass(frozen=True, eq=False)
    class NobodysRisk(AnyRisk):
        results: Results

        def curves(self, epsilons: FloatArray) -> FloatArray:
            return np.zeros((self.results.n_individuals, len(epsilons)))

    risk = NobodysRisk(together)
    assert risk.delta(0.1) == risk.epsilon(0.0) == 0.0
    np.testing.assert_array_equal(risk.influence(), empriv.measure(together).influence())
    assert {check.code for check in checks(risk, 0.1)} == {"iid", "databases", "ties"}


def test_every_kind_gives_back_the_types_it_is_asked_with() -> None:
    made = results()
    kinds: list[AnyRisk] = [
        empriv.measure(made),
        empriv.measure(results(components=2)),
        empriv.measure(made, known=np.random.default_rng(1).normal(size=60)),
    ]
    for kind in kinds:
        for figure in (kind.delta, kind.total_risk):
            assert isinstance(figure(0.1), float)
            assert figure([0.1, 0.2]).shape == (2,)
        assert isinstance(kind.epsilon(0.1), float)
        assert kind.delta_i(0.1).shape == (7,)
        assert kind.delta_i([0.1, 0.2]).shape == (7, 2)


READER = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    kept = pickle.load(file)
for name in ("risk", "joint", "against", "chunked"):
    print(name, repr(kept[name].delta(0.1)), repr(kept[name].epsilon(0.0)))
print("bounds", repr(kept["risk"].bounds(0.1).upper), repr(kept["bounds"].upper), len(kept["bounds"].assumes))
print("audit", kept["audit"].summary().sentences, kept["audit"].checks[0].sentence)
print("page", kept["audit"].report(sys.argv[2]).page.name)
print("verdict", kept["verdict"], kept["verdict"].reasons, kept["verdict"].sentence)
print("noise", repr(kept["noise"].expected_error), repr(kept["noise"].achieved_delta()))
print("results", kept["results"].n_individuals)
"""


@pytest.mark.slow
def test_values_can_be_sent_to_a_fresh_process(tmp_path: Path) -> None:
    made, several = results(), results(components=2)
    audit = empriv.audit(made, epsilon=0.1)
    kept = {
        "risk": empriv.measure(made, density=empriv.Kde("gaussian", "likelihood")),
        "joint": empriv.measure(several),
        "against": empriv.measure(made, known=np.random.default_rng(1).normal(size=60)),
        "chunked": empriv.audit(made, epsilon=0.1, known="nothing", in_chunks=True),
        "bounds": audit.bounds(0.1),
        "audit": audit,
        "verdict": audit.verdict(epsilon=0.1, delta=0.01),
        "noise": empriv.design_noise(audit, epsilon=0.5, delta=0.0, method="classical"),
        "results": made,
    }
    kept["risk"].delta_i(0.2)  # type: ignore[attr-defined]  # what was computed is not sent along
    path = tmp_path / "kept"
    path.write_bytes(pickle.dumps(kept))
    here = subprocess.run([sys.executable, "-c", READER, path, tmp_path / "a.html"], check=True, capture_output=True)
    back = pickle.loads(path.read_bytes())
    lines = here.stdout.decode().splitlines()
    for name, line in zip(("risk", "joint", "against", "chunked"), lines, strict=False):
        assert line == f"{name} {kept[name].delta(0.1)!r} {kept[name].epsilon(0.0)!r}"  # type: ignore[attr-defined]
    assert lines[4].startswith(f"bounds {kept['risk'].bounds(0.1).upper!r} {audit.bounds(0.1).upper!r}")  # type: ignore[attr-defined]
    assert lines[5].startswith(f"audit {audit.summary().sentences}")
    assert lines[6] == "page a.html"
    assert kept["verdict"].sentence in lines[7]  # type: ignore[attr-defined]
    assert back["risk"].density.kernel is empriv.KERNELS["gaussian"]
    assert "_last_curves" not in back["risk"].__dict__
