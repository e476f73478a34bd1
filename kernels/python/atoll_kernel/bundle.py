"""MIME bundles become `result` lines."""

from .private import __builtins__  # isort: skip

import binascii

from . import jsontext

FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
_binary = ("image/png", "image/jpeg", "application/pdf")
_structured = ("application/json", "e2b/data", "e2b/chart")
_base64 = binascii.b2a_base64
_field = FIELDS.get


def trim(text):
    """A quoted text loses its quotes; nothing is unescaped."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _value(mime, value):
    """The JSON text of one representation."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        if mime in _binary or not mime.startswith("text/"):
            value = _base64(value, newline=False).decode("ascii")
        else:
            value = bytes(value).decode("utf-8", "replace")
    if mime in FIELDS and mime not in _structured:
        if not isinstance(value, str):
            value = str(value)
        return jsontext.string(trim(value) if mime == "text/plain" else value)
    try:
        return jsontext.encode(value)
    except Exception:
        pass
    try:
        return jsontext.encode(jsontext.plain(value))
    except Exception:
        return jsontext.string(str(value))


def result_line(data, main):
    """The line of one bundle (MIME type -> value)."""
    parts = ['{"type":"result"']
    extra = []
    for mime, value in data.items():
        if value is None and mime != "application/json":
            continue
        mime = str(mime)
        field = _field(mime)
        if field:
            parts.append('"' + field + '":' + _value(mime, value))
        else:
            extra.append(jsontext.string(mime) + ":" + _value(mime, value))
    parts.append('"extra":{' + ",".join(extra) + "}")
    parts.append('"is_main_result":true}' if main else '"is_main_result":false}')
    return ",".join(parts)
