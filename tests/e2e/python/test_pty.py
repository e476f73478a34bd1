import asyncio
import re

import pytest
from e2b import CommandExitException, PtySize

from support import row, settle, until

SIZE = PtySize(rows=24, cols=80)


class Terminal:
    """A PTY of either flavour with its output gathered: by callback (async) or while waiting (sync)."""

    @classmethod
    async def create(cls, case, **options):
        self = cls(case)
        if case.flavor.is_async:
            self.handle = await case.sbx.pty.create(SIZE, on_data=self.take, **options)
        else:
            self.handle = case.sbx.pty.create(SIZE, **options)
        return self

    @classmethod
    async def connect(cls, case, pid):
        self = cls(case)
        if case.flavor.is_async:
            self.handle = await case.sbx.pty.connect(pid, on_data=self.take)
        else:
            self.handle = case.sbx.pty.connect(pid)
        return self

    def __init__(self, case):
        self.case = case
        self.output = b""

    def take(self, data):
        self.output += data

    async def type(self, text):
        await settle(self.case.sbx.pty.send_stdin(self.handle.pid, text.encode()))

    async def wait(self):
        return await settle(self.handle.wait() if self.case.flavor.is_async else self.handle.wait(on_pty=self.take))

    def shows(self, pattern):
        # Carriage returns begin lines, too: bash moves the cursor back before it runs a command.
        return re.search(pattern, self.output.decode(errors="replace").replace("\r", "\n"), re.MULTILINE)


@row("pty/kill: kill PTY")
async def test_kill(case):
    terminal = await Terminal.create(case)
    assert await settle(case.sbx.pty.kill(terminal.handle.pid)) is True
    with pytest.raises(CommandExitException):
        await terminal.wait()
    with pytest.raises(CommandExitException):
        await settle(case.sbx.commands.run(f"kill -0 {terminal.handle.pid}"))


@row("pty/kill: kill non-existing PTY")
async def test_kill_non_existing(case):
    assert await settle(case.sbx.pty.kill(999999)) is False


@row("pty/connect: reconnect", flavors=("async",))
async def test_reconnect(case):
    first = await Terminal.create(case, envs={"FOO": "bar"})
    await first.type("echo $FOO\n")
    await until("the first echo", lambda: first.shows("^bar"))
    await first.handle.disconnect()
    second = await Terminal.connect(case, first.handle.pid)
    assert second.handle.pid == first.handle.pid
    await second.type("echo $FOO\nexit\n")
    assert (await second.wait()).exit_code == 0
    assert second.shows("^bar")


@row("pty/connect: reconnect after disconnecting at once", flavors=("sync",))
async def test_reconnect_at_once(case):
    first = await Terminal.create(case, envs={"FOO": "bar"})
    first.handle.disconnect()
    second = await Terminal.connect(case, first.handle.pid)
    assert second.handle.pid == first.handle.pid
    await second.type("echo $FOO\nexit\n")
    assert (await second.wait()).exit_code == 0
    assert second.shows("^bar")


@row("pty/create: create PTY")
async def test_create(case):
    terminal = await Terminal.create(case, envs={"ABC": "123"}, cwd="/")
    await terminal.type("echo $ABC; pwd; echo $TERM\nexit\n")
    assert (await terminal.wait()).exit_code == 0
    assert terminal.shows("^123")
    assert terminal.shows("^/$")
    assert terminal.shows("^xterm-256color")


@row("pty/resize: resize")
async def test_resize(case):
    terminal = await Terminal.create(case)
    if case.flavor.is_async:
        await terminal.type("tput cols\n")
        await until("80 columns", lambda: terminal.shows("^80$"))
    else:
        await terminal.type("tput cols\n")
        for _, _, data in terminal.handle:
            terminal.take(data or b"")
            if terminal.shows("^80$"):
                break
        # The generator that was left ended the stream with it.
        terminal = await Terminal.connect(case, terminal.handle.pid)
    await settle(case.sbx.pty.resize(terminal.handle.pid, PtySize(rows=24, cols=100)))
    await terminal.type("tput cols\nexit\n")
    assert (await terminal.wait()).exit_code == 0
    assert terminal.shows("^100$")


@row("pty/input: send input")
async def test_send_input(case):
    terminal = await Terminal.create(case)
    await terminal.type("exit\n")
    assert (await terminal.wait()).exit_code == 0


@row("pty/input: stream input")
async def test_stream_input(case):
    terminal = await Terminal.create(case)
    keys = ["echo str", "eamed\n", "exit\n"]
    if case.flavor.is_async:
        stream = case.sbx.pty.stream_input(terminal.handle.pid)
        for key in keys:
            await stream.send(key)
            await asyncio.sleep(0.05)
        await stream.close()
    else:
        case.sbx.pty.stream_input(terminal.handle.pid, keys)
    assert (await terminal.wait()).exit_code == 0
    assert terminal.shows("^streamed")
