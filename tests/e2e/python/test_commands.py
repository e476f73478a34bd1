import asyncio

import pytest
from e2b import CommandExitException, NotFoundException, TimeoutException

from support import OLD, row, settle


async def background(case, command, **options):
    handle = await settle(case.sbx.commands.run(command, background=True, **options))
    case.defer(handle.kill)
    return handle


async def output(case, command, **options):
    return (await settle(case.sbx.commands.run(command, **options))).stdout


# --- connect


@row("commands/connect: connect to process")
async def test_connect(case):
    started = await background(case, "sleep 10")
    attached = await settle(case.sbx.commands.connect(started.pid))
    assert attached.pid == started.pid
    await settle(attached.disconnect())


@row("commands/connect: connect to non-existing process")
async def test_connect_to_non_existing(case):
    with pytest.raises(NotFoundException):
        await settle(case.sbx.commands.connect(999999))


# --- envs


@row("commands/envs: sandbox global env vars", envs={"FOO": "bar"})
async def test_global_envs(case):
    assert (await output(case, "echo $FOO")).strip() == "bar"


@row("commands/envs: bash command scoped env vars")
async def test_bash_envs(case):
    assert (await output(case, "echo $FOO", envs={"FOO": "bar"})).strip() == "bar"
    after = await settle(case.sbx.commands.run('sudo echo "$FOO"'))
    assert (after.exit_code, after.stdout.strip(), after.stderr) == (0, "", "")


@row("commands/envs: python command scoped env vars")
async def test_python_envs(case):
    code = """python3 -c "import os; print(os.environ['FOO'])" """
    assert (await output(case, code, envs={"FOO": "bar"})).strip() == "bar"
    with pytest.raises(CommandExitException):
        await settle(case.sbx.commands.run(code))


@row("commands/envs: command envs are seen once")
async def test_command_envs(case):
    assert (await output(case, "echo $FOO", envs={"FOO": "bar"})).strip() == "bar"
    assert (await output(case, "echo $FOO")).strip() == ""


# --- kill, list


@row("commands/kill: kill process")
async def test_kill(case):
    handle = await background(case, "sleep 10")
    assert await settle(case.sbx.commands.kill(handle.pid)) is True
    with pytest.raises(CommandExitException) as ended:
        await settle(handle.wait())
    assert ended.value.exit_code == -1
    with pytest.raises(CommandExitException):
        await settle(case.sbx.commands.run(f"kill -0 {handle.pid}"))


@row("commands/kill: kill non-existing process")
async def test_kill_non_existing(case):
    assert await settle(case.sbx.commands.kill(999999)) is False


@row("commands/list: list processes")
async def test_list(case):
    started = {(await background(case, "sleep 10")).pid for _ in range(2)}
    listed = await settle(case.sbx.commands.list())
    assert len(listed) >= 2
    assert started <= {entry.pid for entry in listed}
    for entry in listed:
        if entry.pid in started:
            assert (entry.cmd, entry.args) == ("/bin/bash", ["-l", "-c", "sleep 10"])


# --- run


@row("commands/run: run")
async def test_run(case):
    text = "Hello, World!"
    result = await settle(case.sbx.commands.run(f'echo "{text}"'))
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{text}\n", "")


@row("commands/run: run with special characters")
async def test_run_special(case):
    text = "!@#$%^&*()_+"
    result = await settle(case.sbx.commands.run(f"echo '{text}'"))
    assert (result.exit_code, result.stdout) == (0, f"{text}\n")


@row("commands/run: run with multiline string")
async def test_run_multiline(case):
    text = "Hello,\nWorld!"
    result = await settle(case.sbx.commands.run(f'echo "{text}"'))
    assert (result.exit_code, result.stdout) == (0, f"{text}\n")


@row("commands/run: run with timeout")
async def test_run_timeout(case):
    result = await settle(case.sbx.commands.run("echo in time", timeout=10))
    assert (result.exit_code, result.stdout) == (0, "in time\n")


@row("commands/run: run with too short timeout")
async def test_run_too_short(case):
    with pytest.raises(TimeoutException):
        await settle(case.sbx.commands.run("sleep 10", timeout=2))


@row("commands/run: run with too short timeout iterating", flavors=("sync",))
async def test_run_too_short_iterating(case):
    handle = case.sbx.commands.run("sleep 10", timeout=2, background=True)
    with pytest.raises(TimeoutException):
        for _ in handle:
            pass


@row("commands/run: run with broken utf8")
async def test_run_broken_utf8(case):
    # Fills one read up to the last byte and ends inside a character.
    result = await settle(case.sbx.commands.run("printf 'a%.0s' $(seq 8191); printf '\\xe2'"))
    assert result.exit_code == 0
    assert result.stdout == "a" * 8191 + "\ufffd"


@row("commands/killed: killing the sandbox while a command is running")
async def test_killed_during_run(case):
    handle = await settle(case.sbx.commands.run("sleep 60", background=True))
    await settle(case.sbx.kill())
    if OLD:
        # It has no name for it, but it notices.
        with pytest.raises(Exception) as noticed:
            await settle(handle.wait())
        assert not isinstance(noticed.value, TimeoutError), "the limit of the test"
        assert await settle(case.sbx.is_running()) is False
        return
    with pytest.raises(TimeoutException, match="sandbox was killed or reached its end of life"):
        await settle(handle.wait())


# --- stdin


async def echoed(case, text, feed):
    """Starts `cat`, feeds it, and expects `text` back while stdin stays open."""
    if case.flavor.is_async:
        arrived = asyncio.Queue()
        handle = await case.sbx.commands.run("cat", background=True, stdin=True, on_stdout=arrived.put_nowait)
        case.defer(handle.kill)
        await feed(handle)
        out = ""
        while len(out) < len(text):
            out += await asyncio.wait_for(arrived.get(), 10)
    else:
        handle = case.sbx.commands.run("cat", background=True, stdin=True)
        case.defer(handle.kill)
        await feed(handle)
        out = ""
        for stdout, _, _ in handle:
            out += stdout or ""
            if len(out) >= len(text):
                break
    assert out == text
    assert await settle(handle.kill()) is True


@row("commands/stdin: send stdin to process")
async def test_stdin(case):
    text = "Hello, World!"
    await echoed(case, text, lambda handle: settle(case.sbx.commands.send_stdin(handle.pid, text)))


@row("commands/stdin: send binary stdin")
async def test_stdin_bytes(case):
    text = "Hëllo, Wörld!"
    await echoed(case, text, lambda handle: settle(case.sbx.commands.send_stdin(handle.pid, text.encode())))


@row("commands/stdin: send stdin via command handle")
async def test_stdin_handle(case):
    text = "through the handle"
    await echoed(case, text, lambda handle: settle(handle.send_stdin(text)))


@row("commands/stdin: close stdin via command handle")
async def test_stdin_close(case):
    handle = await settle(case.sbx.commands.run("cat", background=True, stdin=True))
    await settle(handle.send_stdin("all of it"))
    await settle(handle.close_stdin())
    result = await settle(handle.wait())
    assert (result.exit_code, result.stdout) == (0, "all of it")


@row("commands/stdin: send special characters")
async def test_stdin_special(case):
    text = "!@#$%^&*()_+\\\"'`|<>;"
    await echoed(case, text, lambda handle: settle(case.sbx.commands.send_stdin(handle.pid, text)))


@row("commands/stdin: send multiline string")
async def test_stdin_multiline(case):
    text = "Hello,\nWorld!\n\nthird\n"
    await echoed(case, text, lambda handle: settle(case.sbx.commands.send_stdin(handle.pid, text)))


@row("commands/stdin: stream input in many chunks")
async def test_stream_input(case):
    chunks = [f"line {n} of the input\n" for n in range(200)]
    handle = await settle(case.sbx.commands.run("cat", background=True, stdin=True))

    if case.flavor.is_async:
        stdin = case.sbx.commands.stream_input(handle.pid)
        for chunk in chunks:
            await stdin.send(chunk)
        await stdin.close()
    else:
        case.sbx.commands.stream_input(handle.pid, iter(chunks))
    await settle(handle.close_stdin())
    result = await settle(handle.wait())
    assert (result.exit_code, result.stdout) == (0, "".join(chunks))
