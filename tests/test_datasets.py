"""The example data: the paper's figures, the real file's format, the purchases' counts."""

import calendar
import datetime
import runpy
import sys
import zipfile
from decimal import Decimal
from pathlib import Path

import netCDF4
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from empriv.datasets import cdnow, flights, precipitation, read_gpcp
from empriv.errors import InputError, MissingExtraError, SourceError


@pytest.mark.parametrize("rng", [0, 1])
def test_the_stand_in_has_the_figures_of_the_paper(rng):
    made = precipitation(rng)
    assert made.synthetic
    assert made.annual.shape == (10368, 41)
    assert made.databases.tolist() == list(range(1979, 2020))
    assert len(set(made.individuals.tolist())) == 10368
    assert made.individuals[[0, 1, -1]].tolist() == ["88.75N 1.25E", "88.75N 3.75E", "88.75S 358.75E"]
    assert made.annual.std(axis=0).mean() == pytest.approx(686, abs=1e-9)
    assert made.annual.min() > 0
    assert abs(made.q.mean() - 1000) < 10
    typical = np.sort(made.annual.mean(axis=1))
    assert 6000 < typical[-1] < 8000
    assert 3 <= np.count_nonzero(typical > 5000) <= 20


def test_the_averages_without_each_cell_are_exact():
    made = precipitation()
    assert made.q_without.shape == (10368, 41)
    for cell in (0, 5000, 10367, int(made.annual[:, 7].argmax())):
        rest = np.delete(made.annual, cell, axis=0)
        np.testing.assert_allclose(made.q_without[cell], rest.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(made.q, made.annual.mean(axis=0), rtol=1e-14)
    # Both sides share one sum, so that the influence of a cell is right to rounding and not merely the averages.
    influence = (made.annual - made.q) / (10368 - 1)
    np.testing.assert_allclose(made.q - made.q_without, influence, atol=1e-12)


@pytest.mark.parametrize("rng", [0, 3])
def test_delta_becomes_zero_near_the_epsilon_of_the_paper(rng):
    made = precipitation(rng)
    iqr = np.subtract(*np.percentile(made.q, [75, 25]))
    bandwidth = 0.74 * 1.06 * min(made.q.std(ddof=1), iqr / 1.349) * 41**-0.2
    wettest = np.argsort(made.annual.max(axis=1))[-30:]

    def density(knots, sample):
        return np.exp(-np.abs(knots[:, None] - sample) / bandwidth).mean(axis=1)

    # The ratio of two Laplace mixtures is monotone between knots, so that its extremes are at knots (and in the tails).
    epsilons = []
    for cell in wettest:
        knots = np.concatenate([made.q, made.q_without[cell]])
        epsilons.append(np.abs(np.log(density(knots, made.q) / density(knots, made.q_without[cell]))).max())
    assert 0.08 < max(epsilons) < 0.15


@pytest.mark.slow
def test_years_are_independent_of_each_other():
    averages = np.array([precipitation(rng).q for rng in range(40)]) - 1000
    lagged = np.corrcoef(averages[:, 1:].ravel(), averages[:, :-1].ravel())[0, 1]
    assert abs(lagged) < 4 / np.sqrt(1600)
    assert 14 < averages.std() < 16
    # The same test does find a correlation of 0.2, so that it would have found one here.
    mixed = averages[:, 1:] + 0.2 * averages[:, :-1]
    assert np.corrcoef(mixed[:, 1:].ravel(), mixed[:, :-1].ravel())[0, 1] > 4 / np.sqrt(1600)


def test_the_stand_in_is_reproducible():
    np.testing.assert_array_equal(precipitation(3).annual, precipitation(np.random.default_rng(3)).annual)
    assert (precipitation(3).annual != precipitation(4).annual).any()


def test_the_table_has_a_row_for_each_cell_and_year():
    made = precipitation()
    table = made.table()
    assert list(table) == ["year", "cell", "precipitation"]
    assert {len(column) for column in table.values()} == {10368 * 41}
    rows = (table["year"] == 1990) & (table["cell"] == "1.25N 51.25E")
    (cell,) = np.flatnonzero(made.individuals == "1.25N 51.25E")
    assert table["precipitation"][rows].tolist() == [made.annual[cell, 11]]


def write_gpcp(path, *, first=(1999, 1), n_months=24, shape=(72, 144), name="precip", units="mm/day", change=None):
    """A small file in the format of precip.mon.mean.nc."""
    months = [divmod(first[0] * 12 + first[1] - 1 + k, 12) for k in range(n_months)]
    rates = np.random.default_rng(0).uniform(0, 10, (n_months, *shape)).astype(np.float32)
    with netCDF4.Dataset(path, "w") as file:
        for dimension, size in zip(("time", "lat", "lon"), (None, *shape), strict=True):
            file.createDimension(dimension, size)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 1800-1-1"
        origin = datetime.date(1800, 1, 1)
        time[:] = [(datetime.date(year, month + 1, 1) - origin).days for year, month in months]
        file.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-88.75, 88.75, shape[0])
        file.createVariable("lon", "f4", ("lon",))[:] = np.linspace(1.25, 358.75, shape[1])
        variable = file.createVariable(name, "f4", ("time", "lat", "lon"), fill_value=np.float32(-9.96921e36))
        if units is not None:
            variable.units = units
        variable[:] = rates
        if change is not None:
            change(variable)
    return rates


def test_the_real_format_is_read(tmp_path):
    path = tmp_path / "precip.mon.mean.nc"
    rates = write_gpcp(path).astype(np.float64)
    found = read_gpcp(path)
    assert not found.synthetic
    assert found.databases.tolist() == [1999, 2000]
    assert found.annual.shape == (10368, 2)
    names = ["88.75S 1.25E", "88.75S 358.75E", "86.25S 1.25E", "88.75N 358.75E"]
    assert found.individuals[[0, 143, 144, -1]].tolist() == names
    for column, year in enumerate((1999, 2000)):
        days = [calendar.monthrange(year, month)[1] for month in range(1, 13)]
        assert sum(days) == (365, 366)[column]
        expected = sum(d * rates[12 * column + k].ravel() for k, d in enumerate(days))
        np.testing.assert_allclose(found.annual[:, column], expected, rtol=1e-14)
    np.testing.assert_allclose(found.q, found.annual.mean(axis=0))
    assert len(found.table()["year"]) == 2 * 10368


def test_whole_years_are_databases_and_can_be_chosen(tmp_path):
    write_gpcp(tmp_path / "file.nc", first=(1998, 7), n_months=6 + 12 + 11, units=None)  # units may be left unsaid
    assert read_gpcp(tmp_path / "file.nc").databases.tolist() == [1999]
    write_gpcp(tmp_path / "file.nc", n_months=36)
    assert read_gpcp(tmp_path / "file.nc", years=(2000, 2001)).databases.tolist() == [2000, 2001]
    with pytest.raises(InputError, match="`years` must be among those with 12 months in the file, got 2000 to 2002"):
        read_gpcp(tmp_path / "file.nc", years=(2000, 2002))


@pytest.mark.parametrize("hole", [np.ma.masked, np.nan])
def test_missing_values_are_refused_with_their_number(tmp_path, hole):
    def change(variable):
        variable[14, 0, :3] = hole

    write_gpcp(tmp_path / "file.nc", change=change)
    with pytest.raises(SourceError, match="got 3 missing in 2000"):
        read_gpcp(tmp_path / "file.nc")
    assert read_gpcp(tmp_path / "file.nc", years=(1999, 1999)).databases.tolist() == [1999]


def in_moons(file):
    file["time"].units = "moons"


def a_month_twice(file):
    file["time"][12] = file["time"][0] + 3


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"n_months": 11}, None, "got 11 months and no whole year"),
        ({"shape": (10, 20)}, None, "lat = 72, lon = 144, got time = 13, lat = 10, lon = 20"),
        ({"name": "rain"}, None, "got none called precip"),
        ({"units": "inches"}, None, "`precip` must be in mm/day, got 'inches'"),
        ({}, in_moons, "`time` must count days since a date"),
        ({}, a_month_twice, "`time` must have each month once"),
    ],
)
def test_files_of_another_form_are_refused(tmp_path, options, change, message):
    write_gpcp(tmp_path / "file.nc", **{"n_months": 13, **options})
    if change is not None:
        with netCDF4.Dataset(tmp_path / "file.nc", "a") as file:
            change(file)
    with pytest.raises(SourceError, match=message):
        read_gpcp(tmp_path / "file.nc")


def test_what_is_not_a_netcdf_file_is_refused(tmp_path):
    (tmp_path / "file.nc").write_text("year,month\n")
    with pytest.raises(SourceError, match=r"must name a NetCDF file, got 'file\.nc', which is not one"):
        read_gpcp(tmp_path / "file.nc")
    with pytest.raises(SourceError, match="`path` must name a file"):
        read_gpcp(tmp_path / "absent.nc")


def test_without_netcdf_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "netCDF4", None)
    with pytest.raises(MissingExtraError, match=r"`netCDF4` is not installed. Hint: pip install 'empriv\[netcdf\]'"):
        read_gpcp(tmp_path / "file.nc")


def test_the_purchases_are_all_there():
    path = cdnow()
    table = pq.read_table(path)
    assert table.schema.types == [pa.int32(), pa.date32(), pa.int16(), pa.decimal128(9, 2)]
    assert table.column_names == ["customer_id", "date", "quantity", "amount"]
    assert table.num_rows == 69_659
    assert pc.count_distinct(table["customer_id"]).as_py() == 23_570
    assert pc.count_distinct(table["date"]).as_py() == 546
    assert pc.min_max(table["date"]).as_py() == {"min": datetime.date(1997, 1, 1), "max": datetime.date(1998, 6, 30)}
    assert pc.sum(table["amount"]).as_py() == Decimal("2500315.63")
    assert pc.sum(table["quantity"]).as_py() == 167_881
    assert sum(column.null_count for column in table.columns) == 0
    assert table["date"].to_pylist() == sorted(table["date"].to_pylist())
    assert path.stat().st_size < 400_000
    assert (path.parent / "README.md").is_file()


def test_everybody_bought_first_in_the_recruitment_quarter():
    first = pq.read_table(cdnow()).group_by("customer_id").aggregate([("date", "min")])
    assert pc.max(first["date_min"]).as_py() <= datetime.date(1997, 3, 31)


SCRIPT = Path(__file__).parents[1] / "scripts" / "make_cdnow.py"


def test_the_script_that_made_the_purchases_reads_the_text_file_as_it_is(tmp_path):
    text = " customer_id  date number_of_cds  dollar_value\n 00002 19970112  1   12.00\n 00001 19970101  2   29.33\n"
    (tmp_path / "CDNOW_master.txt").write_text(text)
    made = runpy.run_path(str(SCRIPT))["read"](tmp_path / "CDNOW_master.txt")
    assert made.column_names == ["customer_id", "date", "quantity", "amount"]
    assert [tuple(row.values()) for row in made.to_pylist()] == [
        (1, datetime.date(1997, 1, 1), 2, Decimal("29.33")),
        (2, datetime.date(1997, 1, 12), 1, Decimal("12.00")),
    ]


def test_the_flights_are_all_there():
    path = flights()
    table = pq.read_table(path)
    assert table.schema.types == [pa.date32(), pa.string(), pa.int16()]
    assert table.column_names == ["date", "aircraft", "delay"]
    assert table.num_rows == 54_635
    assert pc.count_distinct(table["aircraft"]).as_py() == 193
    assert pc.count_distinct(table["date"]).as_py() == 365
    assert pc.min_max(table["date"]).as_py() == {"min": datetime.date(2013, 1, 1), "max": datetime.date(2013, 12, 31)}
    assert [column.null_count for column in table.columns] == [0, 0, 466]
    assert pc.min_max(table["delay"]).as_py() == {"min": -43, "max": 502}
    assert path.stat().st_size < 300_000
    assert "flights.parquet" in (path.parent / "README.md").read_text()


def test_the_script_that_made_the_flights_keeps_one_carrier_and_cancelled_flights(tmp_path):
    text = (
        "year,month,day,dep_delay,carrier,tailnum\n"
        "2013,1,2,-3,B6,N2\n2013,1,1,NA,B6,N1\n2013,1,1,7,UA,N9\n2013,1,1,12,B6,N1\n"
    )
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", text)
    made = runpy.run_path(str(SCRIPT.with_name("make_flights.py")))["read"](tmp_path / "flights.csv.zip")
    assert [tuple(row.values()) for row in made.to_pylist()] == [
        (datetime.date(2013, 1, 1), "N1", 12),
        (datetime.date(2013, 1, 1), "N1", None),
        (datetime.date(2013, 1, 2), "N2", -3),
    ]
