"""JSON text for the wire: ASCII, one line, no NaN, no lone surrogates.

The encoder is made once and is C code from end to end: what a cell does to the module `json` later does not reach it.
"""

from .private import __builtins__  # isort: skip

import math
import re
from json import encoder as _encoder

_string = _encoder.encode_basestring_ascii
_text = str


class Unserializable(Exception):
    """JSON has no form for the value."""


def _refuse(value):
    raise Unserializable(f"Object of type {type(value).__name__} is not JSON serializable")


def _c_encoder(string, colon, comma):
    if _encoder.c_make_encoder is None:
        encode = _encoder.JSONEncoder(allow_nan=False, separators=(comma, colon), default=_refuse).encode
        return lambda value: encode(value)
    make = _encoder.c_make_encoder(None, _refuse, string, None, colon, comma, False, False, False)
    join = "".join
    return lambda value: join(make(value, 0))


_encode = _c_encoder(_string, ":", ",")
_encode_readable = _c_encoder(_encoder.encode_basestring, ":", ",")

# An escape of the encoder: a surrogate pair, a lone surrogate (group 1), or any other.
_escape = re.compile(r"\\(?:ud[89ab]..\\ud[c-f]..|u(d[89a-f]..)|.)")
_fix = _escape.sub


def _mend(match):
    return match.group(0) if match.group(1) is None else "\\ufffd"


def string(text):
    """A JSON string. A half of a surrogate pair becomes U+FFFD: no reader takes it."""
    line = _string(text)
    if "\\ud" in line:
        line = _fix(_mend, line)
    return line


def encode(value):
    """Any value of plain JSON types. Raises Unserializable or ValueError (NaN, cycles)."""
    line = _encode(value)
    if "\\ud" in line:
        line = _fix(_mend, line)
    return line


def readable(value):
    """Compact JSON text as a person reads it: other scripts are not escaped."""
    return _encode_readable(value)


_finite = math.isfinite
_depth_limit = 200


def plain(value, strict=False, depth=0):
    """A copy of plain JSON types: NumPy scalars and arrays, dates, enumerations and data classes are converted, keys become
    strings, NaN becomes null. Raises Unserializable for anything else; with `strict` also for NaN."""
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return value
    if kind is float:
        if _finite(value):
            return value
        if strict:
            raise Unserializable("Out of range float values are not JSON compliant")
        return None
    if depth > _depth_limit:
        raise Unserializable("the value is nested too deeply or contains itself")
    if isinstance(value, dict):
        return {_key(k): plain(v, strict, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, strict, depth + 1) for v in value]
    return _other(value, strict, depth)


def _key(key):
    if isinstance(key, str):
        return _text(key)
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    value = plain(key)
    if isinstance(value, (int, float, str)):
        return _text(value)
    raise Unserializable(f"keys must be strings, not {type(key).__name__}")


def _other(value, strict, depth):
    if isinstance(value, bool):
        return bool(value)
    import datetime
    import enum

    if isinstance(value, enum.Enum):
        return plain(value.value, strict, depth + 1)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return plain(float(value), strict, depth + 1)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    module = type(value).__module__
    if module == "numpy":
        if type(value).__name__ == "ndarray" and value.dtype.kind in "biufUO":
            return plain(value.tolist(), strict, depth + 1)
        if type(value).__name__ == "datetime64":
            return _text(value)
        if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            item = value.item()
            if type(item) in (bool, int, float, str):
                return plain(item, strict, depth + 1)
    if module == "uuid" and type(value).__name__ == "UUID":
        return _text(value)
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None and not isinstance(value, type):
        return {name: plain(getattr(value, name), strict, depth + 1) for name in fields if name[:1] != "_"}
    _refuse(value)
