"""In which time zone days begin: the one that the user names, else the column's own, else UTC; never the machine's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from empriv.collecting.sources import Databases, Frame
from empriv.errors import SourceError

_ASK = 'Hint: timezone="Europe/Paris" names one (--timezone on the command line).'


def zone_of(data: Databases) -> str:
    """The time zone of a session."""
    if data.timezone is not None:
        return data.timezone
    first = data.parts[0]
    zones = _own_zones(first) if isinstance(first, Frame) else {}
    cut = data.database or ""
    named = {zone for column, zone in zones.items() if re.search(rf"\b{re.escape(column)}\b", cut, re.IGNORECASE)}
    if len(named) > 1:
        raise SourceError(f"The times by which databases are cut must be in one time zone, got several. {_ASK}")
    own = named or set(zones.values())
    return own.pop() if len(own) == 1 else "UTC"


def _own_zones(source: Frame) -> Mapping[str, str]:
    """The time zones of the columns of a pandas, polars or Arrow table."""
    frame: Any = source.frame if source.once is None else next(iter(source.once), None)
    schema: Any = getattr(frame, "schema", None)
    if hasattr(frame, "dtypes") and hasattr(frame.dtypes, "items"):  # pandas
        kinds = {str(name): getattr(kind, "tz", None) for name, kind in frame.dtypes.items()}
    elif hasattr(schema, "items"):  # polars
        kinds = {str(name): getattr(kind, "time_zone", None) for name, kind in schema.items()}
    elif hasattr(schema, "names") and hasattr(schema, "types"):  # Arrow
        kinds = {str(name): getattr(kind, "tz", None) for name, kind in zip(schema.names, schema.types, strict=True)}
    else:
        kinds = {}
    return {name: _named(str(zone)) for name, zone in kinds.items() if zone is not None}


def _named(zone: str) -> str:
    """The name of a zone that is given as an offset of whole hours; others have names."""
    offset = re.fullmatch(r"(?:UTC)?([+-])(\d\d):?(\d\d)", zone)
    if offset is None:
        return zone
    sign, hours, minutes = offset.groups()
    if minutes != "00":
        raise SourceError(f"The times of a column must be in a time zone that has a name, got an offset. {_ASK}")
    # The sign of these names is the other way round: Etc/GMT-1 is an hour ahead of UTC.
    return "UTC" if hours == "00" else f"Etc/GMT{'-' if sign == '+' else '+'}{int(hours)}"
