"""Arrow tables as frames of pandas, in which whole numbers stay whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["to_pandas"]


def to_pandas(table: pyarrow.Table) -> pandas.DataFrame:
    """A table as a frame. A column of whole numbers with nulls is one of pandas' nullable integers, and not of floats, which have no room
    for a frame number or a time in nanoseconds."""
    import pandas
    import pyarrow

    nullable = {getattr(pyarrow, f"{sign}int{bits}")(): getattr(pandas, f"{sign.upper()}Int{bits}Dtype")() for sign in ("", "u") for bits in (8, 16, 32, 64)}
    frame: pandas.DataFrame = table.to_pandas()
    for field, column in zip(table.schema, table.columns):
        if field.type in nullable and column.null_count:
            frame[field.name] = column.to_pandas(types_mapper=nullable.get)
    return frame
