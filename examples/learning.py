"""A hospital publishes a model, trained on a random part of its patients: what does it tell about one of them?

Breast cancer Wisconsin (diagnostic), which scikit-learn carries: W. Wolberg, O. Mangasarian, N. Street and W. Street,
UCI Machine Learning Repository, 1993, CC BY 4.0; every eighth of its 569 patients, three of its columns. Each random
split into training and test part is a database; a Python function, the answer of which is two numbers, is the query.

    python examples/learning.py [--out learning.svg] [--quick]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import empriv
from empriv.report.charts.chart import BLUE, GREEN, VERMILION, Chart, Scale, layer, records, spec_of

EPSILONS = np.round(np.linspace(0.05, 2.0, 40), 2)


def patients(step: int) -> pa.Table:
    """Two standardised measurements of every so many-th patient, and whether the tumour was malignant."""
    cancer = load_breast_cancer()
    measured = cancer.data[::step, :2]
    radius, texture = ((measured - measured.mean(axis=0)) / measured.std(axis=0)).T
    malignant = 1 - cancer.target[::step]
    return pa.table({"patient": np.arange(len(radius)), "radius": radius, "texture": texture, "malignant": malignant})


def model(rows: dict[str, Any]) -> dict[str, float]:
    """Train on one part, test on the other; publish a coefficient and the accuracy."""
    x, y = np.column_stack([rows["radius"], rows["texture"]]), np.asarray(rows["malignant"])
    test = np.asarray(rows["is_test"], bool)
    fitted = LogisticRegression(solver="liblinear").fit(x[~test], y[~test])
    accuracy = np.mean(fitted.predict(x[test]) == y[test])
    return {"coefficient": float(fitted.coef_.ravel()[1]), "accuracy": float(accuracy)}


def main(out: str, *, quick: bool) -> None:
    table, count = (patients(step=20), 20) if quick else (patients(step=8), 100)
    data = empriv.splits(table, individual="patient", count=count, test=0.25)
    # Few fits are over before other processes have started.
    audit = empriv.audit(data, model, epsilon=[0.1, 0.5, 1.0], jobs=1 if quick else None)

    print(f"{audit.results.n_databases} splits of {audit.results.n_individuals} patients")
    released = {f"{name} alone": one for name, one in audit.components.items()} | {"both together": audit}
    print("published             delta at 0.1   delta at 0.5   delta at 1")
    for name, one in released.items():
        print(f"{name:20} {one.delta(0.1):13.3f} {one.delta(0.5):14.3f} {one.delta(1.0):12.3f}")
    found = audit.bounds(1.0)
    print(f"both, epsilon 1: at least {found.lower:.2f}, at most {found.upper:.2f} with 95% confidence each")
    curves({name: np.asarray(one.delta(EPSILONS)) for name, one in released.items()}).save(out)


def curves(deltas: dict[str, np.ndarray[Any, Any]]) -> Chart:
    """delta against epsilon, a line for each of what is published."""
    names = list(deltas)
    top = float(max(delta.max() for delta in deltas.values()))
    rows = [
        row
        for name, delta in deltas.items()
        for row in records(epsilon=EPSILONS, delta=delta, which=[name] * len(EPSILONS))
    ]
    kind = {"field": "which", "type": "nominal"}
    encoding = {
        "x": Scale(0.0, float(EPSILONS[-1])).encoding("epsilon", "epsilon"),
        "y": Scale(0.0, top).encoding("delta", "delta (most exposed patient)"),
        "color": {**kind, "scale": {"domain": names, "range": [BLUE, VERMILION, GREEN]}},
        "strokeDash": {**kind, "scale": {"domain": names, "range": [[1, 0], [7, 3], [2, 2]]}},
    }
    return Chart(
        name="delta",
        title="delta against epsilon, by what is published",
        caption="Each number alone, and both together.",
        spec=spec_of(layer=[layer("lines", {"type": "line", "strokeWidth": 2.2}, rows, encoding)]),
        data={"epsilon": EPSILONS.tolist(), **{name: delta.tolist() for name, delta in deltas.items()}},
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="learning.svg", help="the picture: .svg, .png, .pdf or .html")
    parser.add_argument("--quick", action="store_true", help="a quarter of the patients, fewer splits")
    main(**vars(parser.parse_args()))
