"""Runs with arguments: the cell defines `main`, it is called, its value is the result (kernels/protocol.md)."""

from .private import __builtins__  # isort: skip

import inspect

from . import jsontext


class Refused(Exception):
    def __init__(self, name, value):
        self.name = name
        self.value = value


def call(shell, arguments, run_awaitable):
    """The bundle of main(**arguments). Raises Refused, or what `main` raised."""
    main = shell.user_ns.get("main")
    if not callable(main):
        raise Refused("MissingMain", "the code defines no function main")
    try:
        signature = inspect.signature(main)
    except (TypeError, ValueError):
        signature = None
    if signature is not None:
        try:
            signature.bind(**arguments)
        except TypeError as error:
            raise Refused("InvalidArguments", f"main{signature}: {error}") from None
    value = main(**arguments)
    if inspect.isawaitable(value):
        value = run_awaitable(_wait(value))
    try:
        value = jsontext.plain(value, strict=True)
        return {"application/json": value, "text/plain": jsontext.readable(value)}
    except Exception as error:
        raise Refused("UnserializableResult", str(error)) from None


async def _wait(awaitable):
    return await awaitable
