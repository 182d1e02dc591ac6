"""Pictures of a comparison, from the purchases that the package carries. Run: python scripts/make_compare_pictures.py

Writes docs/images/compare-*.svg and prints the table that docs/noise.md shows beside them.
"""

from __future__ import annotations

from pathlib import Path

import empriv
from empriv import datasets, protocols

IMAGES = Path(__file__).parents[1] / "docs" / "images"
QUERY = "SELECT avg(amount) FROM data"


def main() -> None:
    data = empriv.databases(
        "SELECT * FROM purchases WHERE date >= DATE '1998-01-01'",
        database="date",
        individual="customer_id",
        tables={"purchases": datasets.cdnow()},
    )
    ways = {
        "raw": QUERY,
        "clipped at 60": protocols.winsorised(QUERY, "amount", lower=0, upper=60),
        "half of the rows": protocols.subsampled(QUERY, share=0.5),
        "noise on rows": protocols.local_noise(QUERY, "amount", scale=20),
        "laplace": protocols.laplace(QUERY, sensitivity=5, epsilon=1),
    }
    comparison = empriv.compare(ways, data, truth="raw", epsilon=(0.1, 0.5), draws=4)
    print(comparison)
    for name in ("delta", "utility"):
        comparison.chart(name).save(IMAGES / f"compare-{name}.svg")


if __name__ == "__main__":
    main()
