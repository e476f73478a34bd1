"""Values of matplotlib's artists as values of JSON: float, str or None. NaN and infinities become None."""

import datetime
import decimal
import math

import numpy as np


def number(value):
    """A finite float, or None."""
    value = float(value)
    return value if math.isfinite(value) else None


def json_values(data):
    """A list of JSON values from what a user plotted: numbers, strings, dates, with gaps."""
    array = data if isinstance(data, np.ndarray) else None
    if array is not None and array.dtype.kind in "fiub":
        return numbers(array)
    if array is not None and array.dtype.kind == "M":
        return [_datetime64(value) for value in array.ravel()]
    if array is not None:
        data = np.ma.filled(array, None) if np.ma.isMaskedArray(array) else array
        data = data.ravel()
    elif isinstance(data, (str, bytes)) or not hasattr(data, "__iter__"):
        data = [data]
    return [json_value(value) for value in data]


def numbers(array):
    """A list of floats and None from an array of numbers, masked or not, of one dimension."""
    floats = np.ma.filled(np.ma.asarray(array).astype(float), np.nan).ravel()
    values = floats.tolist()
    if not np.isfinite(floats).all():
        values = [value if math.isfinite(value) else None for value in values]
    return values


def json_value(value):
    if value is None or value is np.ma.masked:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.datetime64):
        return _datetime64(value)
    if _is_gap(value):
        return None
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        return number(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)


def _is_gap(value):
    # NaN, NaT and a missing value of pandas: none of them equals itself, the last one does not even say so.
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return True


def _datetime64(value):
    return None if np.isnat(value) else str(np.datetime_as_string(value, unit="s"))


def rounded(value):
    """Rounds away the noise of single precision: 8 - e digits, e being the exponent of the first one, at least one."""
    return _round_to(value, lambda exponent: max(1, 8 - exponent))


def rounded_coordinate(value):
    """As `rounded`, but large values, of which that would leave less than five digits, keep eight."""
    return _round_to(value, lambda exponent: 8 - exponent if exponent <= 3 else 8)


def _round_to(value, digits_of):
    value = float(value)
    if not math.isfinite(value):
        return None
    exact = decimal.Decimal(repr(value))
    if exact.is_zero():
        return 0.0
    context = decimal.Context(prec=digits_of(exact.adjusted()), rounding=decimal.ROUND_HALF_EVEN)
    return float(context.plus(exact))
