"""Dates and times of any year, as the integers in which Iceberg counts them.

Python's own types end at the years 1 and 9999, and Arrow's calendar functions not far beyond; Iceberg's longs reach
the year 292,000 on either side. But the calendar repeats every 400 years to the day, so any date is looked up
in the 400 years from 2000 on.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

MICROS = 1_000_000
NANOS = 1_000_000_000

_DAY_S = 86_400
_HOUR_S = 3_600
_ERA_YEARS = 400
_ERA_DAYS = 146_097
_ERA_START = (dt.date(2000, 1, 1) - dt.date(1970, 1, 1)).days


def days(instants: pa.Array, unit: int) -> pa.Array:
    """Days since 1970 of instants of which a second has `unit`."""
    return floor_divide(instants, unit * _DAY_S)


def hours(instants: pa.Array, unit: int) -> pa.Array:
    """Hours since 1970."""
    return floor_divide(instants, unit * _HOUR_S)


def months(day_counts: pa.Array) -> pa.Array:
    """Months since January 1970."""
    since_start = pc.subtract(day_counts.cast(pa.int64()), _ERA_START)
    eras = floor_divide(since_start, _ERA_DAYS)
    in_first_era = pc.add(pc.subtract(since_start, pc.multiply(eras, _ERA_DAYS)), _ERA_START)
    date = in_first_era.cast(pa.int32()).view(pa.date32())
    years = pc.add(pc.subtract(pc.year(date), 1970), pc.multiply(eras, _ERA_YEARS))
    return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(date), 1))


def years(day_counts: pa.Array) -> pa.Array:
    """Years since 1970."""
    return floor_divide(months(day_counts), 12)


def floor_divide(values: pa.Array, divisor: int) -> pa.Array:
    """Arrow rounds towards zero; what lies before 1970 must be rounded down."""
    quotients = pc.divide(values, divisor)
    remainders = pc.subtract(values, pc.multiply(quotients, divisor))
    return pc.subtract(quotients, pc.less(remainders, 0).cast(pa.int64()))


def year_month_day(day_count: int) -> tuple[int, int, int]:
    eras, rest = divmod(day_count - _ERA_START, _ERA_DAYS)
    date = dt.date(2000, 1, 1) + dt.timedelta(days=rest)
    return date.year + eras * _ERA_YEARS, date.month, date.day


def iso_date(day_count: int) -> str:
    """As ISO 8601 and Java spell it: beyond four digits a year needs its sign."""
    year, month, day = year_month_day(day_count)
    return f"{iso_year(year)}-{month:02d}-{day:02d}"


def iso_year(year: int) -> str:
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}"


def iso_time(count: int, unit: int) -> str:
    """Time of day, with as many digits of a second as it takes."""
    seconds, fraction = divmod(count, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0")
    text = f"{seconds // _HOUR_S:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{digits}" if digits else text


def iso_timestamp(instant: int, unit: int) -> str:
    day_count, rest = divmod(instant, _DAY_S * unit)
    return f"{iso_date(day_count)}T{iso_time(rest, unit)}"
