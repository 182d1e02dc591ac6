"""Data to try empriv on: the paper's precipitation example, a shop's purchases, an airline's delays, a hospital.

- `precipitation` makes a SYNTHETIC stand-in for the paper's example; `read_gpcp` reads the real file.
- `admissions` makes SYNTHETIC admissions to a hospital, for tables by ward and age.
- `cdnow` and `flights` name Parquet files of real purchases and real departures that the package carries.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from os import PathLike
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError, MissingExtraError, SourceError

__all__ = ["Precipitation", "admissions", "cdnow", "flights", "precipitation", "read_gpcp"]

FloatArray = npt.NDArray[np.float64]

N_LATITUDES, N_LONGITUDES = 72, 144
PAPER_YEARS = range(1979, 2020)
PAPER_SPREAD = 686.0
"""Standard deviation over cells within a year, averaged over years, in mm (the paper's "Applications")."""

MEAN = 1000.0
YEAR_TO_YEAR = 15.0
"""Standard deviation of the average over cells from year to year, in mm.

The wettest cell has 6,700 mm in an average year, so that leaving it out moves the average over cells by
(6,700 - 1,000) / 10,367 = 0.55 mm. For epsilon = 0.12, where the paper's delta becomes 0, a Laplace kernel must then
have a bandwidth near 4.6 mm: about what cross-validation chooses for 41 averages of this standard deviation.
"""


@dataclass(frozen=True, eq=False)
class Precipitation:
    """Annual precipitation on a grid: each year is a database, each cell an individual, the query their average.

    Attributes
    ----------
    annual : array (cells, years)
        Annual totals in mm.
    databases : array (years,)
    individuals : array (cells,)
        Cells by their centre, such as "88.75N 1.25E".
    synthetic : whether the numbers are made up

    Examples
    --------
    >>> empriv.datasets.precipitation().q_without.shape
    (10368, 41)
    """

    annual: FloatArray
    databases: npt.NDArray[np.int64]
    individuals: npt.NDArray[np.str_]
    synthetic: bool

    @cached_property
    def _totals(self) -> FloatArray:
        # Contiguous along the sum: there NumPy adds in pairs and loses least.
        return np.asarray(np.ascontiguousarray(self.annual.T).sum(axis=1), np.float64)

    @cached_property
    def q(self) -> FloatArray:
        """Average over cells, for each year: (years,)."""
        return self._totals / len(self.annual)

    @cached_property
    def q_without(self) -> FloatArray:
        """Average over all cells but one: (cells, years)."""
        return (self._totals - self.annual) / (len(self.annual) - 1)

    def table(self) -> dict[str, npt.NDArray[Any]]:
        """Columns ``year``, ``cell`` and ``precipitation``, with a row for each cell and year."""
        n_cells, n_years = self.annual.shape
        return {
            "year": np.repeat(self.databases, n_cells),
            "cell": np.tile(self.individuals, n_years),
            "precipitation": self.annual.T.ravel(),
        }


def precipitation(rng: int | np.random.Generator = 0) -> Precipitation:
    """A SYNTHETIC stand-in for the paper's example, with its figures: no number in it was measured.

    It has 41 years (1979 to 2019), 72 x 144 cells of 2.5 degrees, a standard deviation over cells within a year of
    686 mm on average, and independent, identically distributed years. A few cells are far wetter than the others,
    and with a Laplace kernel delta becomes 0 near epsilon = 0.12, as in the paper (0.09 to 0.14, depending on ``rng``).

    Examples
    --------
    >>> rain = empriv.datasets.precipitation()
    >>> print(f"{empriv.measure(rain.q, rain.q_without).epsilon(0.0):.3f}")
    0.129
    """
    generator = np.random.default_rng(rng)
    latitudes = np.linspace(88.75, -88.75, N_LATITUDES)
    longitudes = np.linspace(1.25, 358.75, N_LONGITUDES)
    n_cells, n_years = N_LATITUDES * N_LONGITUDES, len(PAPER_YEARS)
    averages = MEAN + YEAR_TO_YEAR * generator.standard_normal(n_years)
    # Levels are the same for every generator, power-normal with a tail between those of a gamma and a lognormal law;
    # which cell gets which is drawn. So the wettest cells, which the example is about, are always equally wet.
    scores = np.array([NormalDist().inv_cdf((rank + 0.5) / n_cells) for rank in range(n_cells)])
    levels = np.empty(n_cells)
    levels[np.argsort(_wetness(latitudes, longitudes, generator), kind="stable")] = (1 + 0.70 / 4 * scores) ** 4
    annual = levels[:, None] * np.exp(0.06 * generator.standard_normal((n_cells, n_years)))
    annual *= averages / annual.mean(axis=0)
    # Shrinking towards the year's average keeps that average, and every total positive.
    shrink = PAPER_SPREAD / annual.std(axis=0).mean()
    annual = averages + shrink * (annual - averages)
    return Precipitation(
        annual=annual,
        databases=np.array(PAPER_YEARS),
        individuals=_cell_names(latitudes, longitudes),
        synthetic=True,
    )


def _wetness(latitudes: FloatArray, longitudes: FloatArray, generator: np.random.Generator) -> FloatArray:
    """A score by which cells are ranked: wet tropics and middle latitudes, dry poles, smooth chance patterns."""
    zonal = 2.2 * np.exp(-(((latitudes - 5) / 10) ** 2)) + np.exp(-(((np.abs(latitudes) - 45) / 15) ** 2))
    east, north = np.radians(longitudes), np.radians(latitudes)
    field = np.tile(zonal[:, None], (1, len(longitudes)))
    for _ in range(40):
        waves, slope = generator.integers(0, 9), generator.normal(scale=6)
        phase, height = generator.uniform(0, 2 * np.pi), generator.normal(scale=0.15)
        field += height * np.cos(waves * east + slope * north[:, None] + phase)
    return np.asarray(field + 0.2 * generator.standard_normal(field.shape), np.float64).ravel()


def read_gpcp(path: str | PathLike[str], *, years: tuple[int, int] | None = None) -> Precipitation:
    """The paper's real data: monthly precipitation of the Global Precipitation Climatology Project.

    Parameters
    ----------
    path : the file ``precip.mon.mean.nc``: variable ``precip`` (time, 72 latitudes, 144 longitudes) in mm/day
    years : first and last year, both included; the paper has (1979, 2019). None takes all.

    Notes
    -----
    Months become annual totals by their number of days. A year is a database only if the file has all of its months.

    Examples
    --------
    Needs the extra ``netcdf``.

    >>> rain = empriv.datasets.read_gpcp("precip.mon.mean.nc", years=(1999, 2000))
    >>> rain.annual.shape
    (10368, 2)
    """
    try:
        import netCDF4
    except ImportError:
        raise MissingExtraError("netCDF4", "netcdf") from None
    if not Path(path).is_file():
        raise SourceError(f"`path` must name a file, got {str(path)!r}.")
    try:
        file = netCDF4.Dataset(path)
    except OSError:
        raise SourceError(f"`path` must name a NetCDF file, got {Path(path).name!r}, which is not one.") from None
    with file:
        missing = [name for name in ("precip", "time", "lat", "lon") if name not in file.variables]
        if missing:
            raise SourceError(f"The file must have variables precip, time, lat, lon, got none called {missing[0]}.")
        daily, time = file["precip"], file["time"]
        if daily.dimensions != ("time", "lat", "lon") or daily.shape[1:] != (N_LATITUDES, N_LONGITUDES):
            dimensions = ", ".join(f"{name} = {size}" for name, size in zip(daily.dimensions, daily.shape, strict=True))
            raise SourceError(
                f"`precip` must have dimensions time, lat = {N_LATITUDES}, lon = {N_LONGITUDES}, got {dimensions}."
            )
        units = getattr(daily, "units", "mm/day")
        if units != "mm/day":
            raise SourceError(f"`precip` must be in mm/day, got {units!r}.")
        try:
            stamps = netCDF4.num2date(time[:], time.units, getattr(time, "calendar", "standard"))
        except (AttributeError, ValueError):
            raise SourceError("`time` must count days since a date, in a calendar that is named.") from None
        months = [(stamp.year, stamp.month) for stamp in np.asarray(stamps).tolist()]
        rates = daily[:]
        cells = _cell_names(np.asarray(file["lat"][:], np.float64), np.asarray(file["lon"][:], np.float64))
    return _annual(months, rates, cells, years)


def _annual(
    months: list[tuple[int, int]], rates: npt.NDArray[Any], cells: npt.NDArray[np.str_], years: tuple[int, int] | None
) -> Precipitation:
    if len(set(months)) != len(months):
        raise SourceError("`time` must have each month once, got a month twice.")
    at = {month: position for position, month in enumerate(months)}
    whole = sorted({year for year, _ in months if all((year, month) in at for month in range(1, 13))})
    if years is not None:
        whole = [year for year in whole if years[0] <= year <= years[1]]
        if whole != list(range(years[0], years[1] + 1)):
            raise InputError(f"`years` must be among those with 12 months in the file, got {years[0]} to {years[1]}.")
    if not whole:
        raise SourceError(f"The file must hold a year with 12 months, got {len(months)} months and no whole year.")
    annual = np.empty((len(cells), len(whole)))
    for column, year in enumerate(whole):
        positions = [at[year, month] for month in range(1, 13)]
        days = np.array([calendar.monthrange(year, month)[1] for month in range(1, 13)], np.float64)
        daily = np.ma.filled(rates[positions].astype(np.float64), np.nan).reshape(12, -1)
        absent = int(np.count_nonzero(~np.isfinite(daily)))
        if absent:
            raise SourceError(
                f"`precip` must have a value for each month and cell, got {absent} missing in {year}. "
                "Hint: `years` can leave that year out if it is the first or the last."
            )
        annual[:, column] = days @ daily
    return Precipitation(annual=annual, databases=np.array(whole), individuals=cells, synthetic=False)


def _cell_names(latitudes: FloatArray, longitudes: FloatArray) -> npt.NDArray[np.str_]:
    north = [f"{abs(latitude):g}{'N' if latitude >= 0 else 'S'}" for latitude in latitudes.tolist()]
    east = [f"{longitude:g}E" if longitude >= 0 else f"{-longitude:g}W" for longitude in longitudes.tolist()]
    return np.array([f"{latitude} {longitude}" for latitude in north for longitude in east])


WARDS = ("Cardiology", "Dialysis", "Maternity", "Oncology", "Surgery")
AGES = ("0-17", "18-39", "40-59", "60-79", "80+")
# Shares of a ward's patients by age, and how many patients each ward has of every hundred.
_AGES_OF = {
    "Cardiology": (0.02, 0.05, 0.23, 0.45, 0.25),
    "Dialysis": (0.02, 0.08, 0.25, 0.45, 0.20),
    "Maternity": (0.06, 0.88, 0.06, 0.00, 0.00),
    "Oncology": (0.06, 0.10, 0.30, 0.40, 0.14),
    "Surgery": (0.14, 0.24, 0.28, 0.24, 0.10),
}
_OF_A_HUNDRED = (24, 6, 18, 16, 36)


def admissions(rng: int | np.random.Generator = 0, *, weeks: int = 156, patients: int = 3_000) -> dict[str, Any]:
    """SYNTHETIC admissions to a hospital: columns ``week``, ``patient``, ``ward`` and ``age``; nobody in it exists.

    About 220 admissions a week, in busy weeks half as many again. Most patients come a few times in three years. Those
    of the dialysis ward come in most weeks, which is what a table of weekly counts must hide.

    Examples
    --------
    >>> rows = empriv.datasets.admissions()
    >>> len(rows["patient"])
    34412
    """
    generator = np.random.default_rng(rng)
    ward = generator.choice(len(WARDS), patients, p=np.array(_OF_A_HUNDRED) / 100)
    shares = np.cumsum([_AGES_OF[name] for name in WARDS], axis=1)
    age = (generator.random(patients)[:, None] > shares[ward]).sum(axis=1)
    rate = generator.gamma(1.0, 0.04, patients)  # of coming in a given week
    rate[ward == WARDS.index("Dialysis")] = generator.uniform(0.3, 0.95, int((ward == WARDS.index("Dialysis")).sum()))
    busy = generator.gamma(30.0, 1 / 30, weeks) * (1 + 0.08 * np.cos(2 * np.pi * np.arange(weeks) / 52))
    week, patient = np.nonzero(generator.random((weeks, patients)) < np.minimum(rate * busy[:, None], 1.0))
    monday = np.datetime64("2023-01-02") + 7 * np.arange(weeks)
    return {
        "week": monday[week].astype("datetime64[us]"),
        "patient": patient,
        "ward": np.array(WARDS)[ward[patient]],
        "age": np.array(AGES)[np.minimum(age, len(AGES) - 1)[patient]],
    }


def cdnow() -> Path:
    """The path of a Parquet file of real purchases: CDNOW's customers of early 1997, until June 1998.

    69,659 purchases by 23,570 customers on 546 days, in columns ``customer_id``, ``date``, ``quantity`` and ``amount``
    (DECIMAL). Customers joined until 31 March 1997, so the same customers can buy on all later days. The source and its
    licence (MIT) are in ``empriv/data/README.md``.

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.cdnow(), database="date", individual="customer_id")
    >>> empriv.collect(data, "count(*)").n_individuals
    23570
    """
    return Path(str(resources.files("empriv") / "data" / "cdnow.parquet"))


def flights() -> Path:
    """The path of a Parquet file of real departures: JetBlue's from New York in 2013.

    54,635 flights of 193 aircraft on 365 days, in columns ``date``, ``aircraft`` (tail number) and ``delay`` (minutes;
    negative if early, NULL if cancelled). The source and its licence (CC0) are in ``empriv/data/README.md``.

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> empriv.collect(data, "count(*)").n_databases
    365
    """
    return Path(str(resources.files("empriv") / "data" / "flights.parquet"))
