"""Pause and resume, by hand, by time and by traffic."""

import asyncio
import datetime
import time

import pytest
from e2b import SandboxQuery, SandboxState

from support import SandboxNotFoundException, row, settle, unique, until, visit


async def boot_id(sbx):
    return await settle(sbx.files.read("/proc/sys/kernel/random/boot_id"))


async def state(sbx):
    return (await settle(sbx.get_info())).state


async def is_paused(sbx):
    return await state(sbx) == SandboxState.PAUSED


async def connect(sbx):
    return await settle(sbx.connect())


async def background(sbx, command):
    return await settle(sbx.commands.run(command, background=True, timeout=0))


async def serve(sbx, port, text):
    await settle(sbx.files.write(f"www{port}/index.html", text))
    await background(sbx, f"cd www{port} && python3 -m http.server {port}")

    async def up():
        return (await visit(sbx, port))[0] == 200

    await until("the server", up)


# --- pause


@row("lifecycle/pause: pause and resume")
async def test_pause_and_resume(case):
    await settle(case.sbx.pause())
    assert await settle(case.sbx.is_running()) is False
    assert await is_paused(case.sbx)
    same = await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id))
    assert same.sandbox_id == case.sbx.sandbox_id
    assert await settle(case.sbx.is_running()) is True
    assert await state(case.sbx) == SandboxState.RUNNING
    assert (await settle(case.sbx.commands.run("echo again"))).stdout == "again\n"


@row("lifecycle/pause: by id")
async def test_pause_by_id(case):
    await settle(case.flavor.Sandbox.pause(case.sbx.sandbox_id))
    assert await settle(case.sbx.is_running()) is False


@row("lifecycle/pause: of a paused or killed sandbox")
async def test_pause_again(case):
    assert await settle(case.sbx.pause()) is True
    assert await settle(case.sbx.pause()) is False
    assert await settle(case.sbx.kill()) is True
    with pytest.raises(SandboxNotFoundException):
        await settle(case.sbx.pause())
    with pytest.raises(SandboxNotFoundException):
        await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id))


@row("lifecycle/pause: resume by connect with the old handle")
async def test_resume_old_handle(case):
    await settle(case.sbx.pause())
    await connect(case.sbx)
    assert await settle(case.sbx.is_running()) is True
    await settle(case.sbx.files.write("after.txt", "the pause"))
    assert await settle(case.sbx.files.read("after.txt")) == "the pause"


@row("lifecycle/pause: environment survives", envs={"TEST_VAR": "sfisback"})
async def test_pause_envs(case):
    for cycle in range(2):
        assert (await settle(case.sbx.commands.run('echo "$TEST_VAR"'))).stdout == "sfisback\n", f"cycle {cycle}"
        await settle(case.sbx.pause())
        await connect(case.sbx)


@row("lifecycle/pause: files survive")
async def test_pause_files(case):
    await settle(case.sbx.files.write("snapshot.txt", "before"))
    await settle(case.sbx.commands.run("echo in memory > /dev/shm/mark && echo temporary > /tmp/mark"))
    await settle(case.sbx.pause())
    await connect(case.sbx)
    assert await settle(case.sbx.files.read("snapshot.txt")) == "before"
    assert (await settle(case.sbx.commands.run("cat /dev/shm/mark /tmp/mark"))).stdout == "in memory\ntemporary\n"


@row("lifecycle/pause: a running process goes on")
async def test_pause_process(case):
    command = await background(case.sbx, "sleep 3600")
    before = await boot_id(case.sbx)
    await settle(case.sbx.pause())
    await connect(case.sbx)
    assert command.pid in [entry.pid for entry in await settle(case.sbx.commands.list())]
    again = await settle(case.sbx.commands.connect(command.pid))
    assert again.pid == command.pid
    assert await boot_id(case.sbx) == before
    assert await settle(case.sbx.commands.kill(command.pid)) is True


@row("lifecycle/pause: a job finishes after the resume")
async def test_pause_job(case):
    await background(case.sbx, "sleep 2 && echo done > /home/user/job.txt")
    await settle(case.sbx.pause())
    await connect(case.sbx)
    await until("the job", lambda: case.sbx.files.exists("job.txt"))
    await until("its text", lambda: case.sbx.files.read("job.txt"))
    assert await settle(case.sbx.files.read("job.txt")) == "done\n"


@row("lifecycle/pause: a server inside answers again")
async def test_pause_server(case):
    await serve(case.sbx, 8000, "served over a pause")
    await settle(case.sbx.pause())
    assert (await visit(case.sbx, 8000))[0] == 502
    await connect(case.sbx)
    status, _, body = await visit(case.sbx, 8000)
    assert (status, body) == (200, b"served over a pause")


@row("lifecycle/pause: filesystem only is a reboot", envs={"KEPT": "yes"})
async def test_pause_filesystem_only(case):
    await settle(case.sbx.files.write("kept.txt", "on disk"))
    command = await background(case.sbx, "sleep 3600")
    before = await boot_id(case.sbx)
    await settle(case.sbx.pause(keep_memory=False))
    assert await settle(case.sbx.is_running()) is False
    assert await is_paused(case.sbx)
    same = await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id))
    assert same.sandbox_id == case.sbx.sandbox_id
    assert await settle(case.sbx.files.read("kept.txt")) == "on disk"
    assert await boot_id(case.sbx) != before
    assert command.pid not in [entry.pid for entry in await settle(case.sbx.commands.list())]
    assert (await settle(case.sbx.commands.run("echo $KEPT"))).stdout == "yes\n"


@row("lifecycle/pause: many cycles lose nothing", timeout=420)
async def test_pause_cycles(case):
    before = await boot_id(case.sbx)
    program = "import time\nn = 0\nwhile True:\n    n += 1\n    open('/dev/shm/n', 'w').write(str(n))\n    time.sleep(0.01)"
    await settle(case.sbx.files.write("count.py", program))
    await background(case.sbx, "python3 -u count.py")
    last = 0
    for cycle in range(5):
        started = time.monotonic()
        await settle(case.sbx.pause())
        await connect(case.sbx)
        assert time.monotonic() - started < 10, "a pause and a resume take less than ten seconds"

        async def counted():
            text = await settle(case.sbx.files.read("/dev/shm/n"))
            return int(text) if text and int(text) > last else 0

        await until("the file", lambda: case.sbx.files.exists("/dev/shm/n"))
        last = await until(f"the counter in cycle {cycle}", counted)
    assert await boot_id(case.sbx) == before


# --- timeout


@row("lifecycle/timeout: auto-pause needs a connect to wake", timeout=3, lifecycle={"on_timeout": "pause"})
async def test_auto_pause(case):
    await asyncio.sleep(5)
    assert await is_paused(case.sbx)
    assert await settle(case.sbx.is_running()) is False
    assert await is_paused(case.sbx)
    await connect(case.sbx)
    assert await state(case.sbx) == SandboxState.RUNNING
    assert await settle(case.sbx.is_running()) is True


@row("lifecycle/timeout: filesystem-only auto-pause reboots", timeout=3,
     lifecycle={"on_timeout": {"action": "pause", "keep_memory": False}})
async def test_auto_pause_filesystem_only(case):
    await settle(case.sbx.files.write("kept.txt", "on disk"))
    before = await boot_id(case.sbx)
    await asyncio.sleep(4.5)
    assert await is_paused(case.sbx)
    await connect(case.sbx)
    assert await settle(case.sbx.files.read("kept.txt")) == "on disk"
    assert await boot_id(case.sbx) != before


@row("lifecycle/timeout: auto-resume wakes on a request", timeout=60,
     lifecycle={"on_timeout": "pause", "auto_resume": True})
async def test_auto_resume(case):
    # Its stream is open over the pause and stands still: a broken one would make the SDK ask for the sandbox's health, which is traffic.
    await settle(case.sbx.files.write("www/index.html", "woken"))
    await settle(case.sbx.commands.run("cd www && exec python3 -m http.server 8000", background=True, timeout=0))

    async def up():
        return (await visit(case.sbx, 8000))[0] == 200

    await until("the server", up)
    await settle(case.sbx.set_timeout(1))
    await until("the pause", lambda: is_paused(case.sbx))
    status, _, body = await visit(case.sbx, 8000)
    assert (status, body) == (200, b"woken")
    assert await state(case.sbx) == SandboxState.RUNNING
    assert await settle(case.sbx.is_running()) is True
    left = (await settle(case.sbx.get_info())).end_at - datetime.datetime.now(datetime.timezone.utc)
    assert left.total_seconds() > 290


@row("lifecycle/timeout: auto-resume by the SDK itself", timeout=60,
     lifecycle={"on_timeout": "pause", "auto_resume": True})
async def test_auto_resume_sdk(case):
    await settle(case.sbx.pause())
    assert await is_paused(case.sbx)
    assert (await settle(case.sbx.commands.run("echo awake"))).stdout == "awake\n"
    assert await state(case.sbx) == SandboxState.RUNNING


@row("lifecycle/timeout: zero pauses now", timeout=60, lifecycle={"on_timeout": {"action": "pause", "keep_memory": None}})
async def test_zero_pauses(case):
    before = await boot_id(case.sbx)
    await settle(case.sbx.set_timeout(0))
    await until("the pause", lambda: is_paused(case.sbx))
    await connect(case.sbx)
    assert await boot_id(case.sbx) == before


@row("lifecycle/timeout: zero kills now")
async def test_zero_kills(case):
    await settle(case.sbx.set_timeout(0))

    async def ended():
        return not await settle(case.sbx.is_running())

    await until("the end", ended)
    with pytest.raises(SandboxNotFoundException):
        await settle(case.sbx.get_info())


@row("lifecycle/timeout: info tells the lifecycle", timeout=60, lifecycle={"on_timeout": "pause", "auto_resume": True})
async def test_info_lifecycle(case):
    told = (await settle(case.sbx.get_info())).lifecycle
    seen = told if isinstance(told, dict) else vars(told)
    assert str(getattr(seen["on_timeout"], "value", seen["on_timeout"])) == "pause"
    assert seen["auto_resume"] is True


# --- list


async def make(case, tag):
    sbx = await case.flavor.create(metadata={"tag": tag})
    case.defer(sbx.kill)
    return sbx


async def listed(case, **options):
    pages = case.flavor.Sandbox.list(**options)
    found = []
    while pages.has_next:
        found.extend(await settle(pages.next_items()))
    return [(entry.sandbox_id, entry.state) for entry in found]


PAUSED = [SandboxState.PAUSED]


@row("lifecycle/list: paused sandboxes", sandbox=False)
async def test_list_paused(case):
    tag = unique("paused")
    sbx = await make(case, tag)
    await settle(sbx.pause())
    assert await listed(case, query=SandboxQuery(metadata={"tag": tag}, state=PAUSED)) == [(sbx.sandbox_id, SandboxState.PAUSED)]
    assert await listed(case, query=SandboxQuery(metadata={"tag": tag}, state=[SandboxState.RUNNING])) == []


@row("lifecycle/list: paginate paused sandboxes", sandbox=False)
async def test_list_paused_pages(case):
    tag = unique("paused")
    older, newer = await make(case, tag), await make(case, tag)
    await settle(newer.pause())
    await settle(older.pause())
    pages = case.flavor.Sandbox.list(query=SandboxQuery(metadata={"tag": tag}, state=PAUSED), limit=1)
    assert [entry.sandbox_id for entry in await settle(pages.next_items())] == [newer.sandbox_id]
    assert pages.has_next is True and pages.next_token
    assert [entry.sandbox_id for entry in await settle(pages.next_items())] == [older.sandbox_id]
    assert pages.has_next is False


@row("lifecycle/list: paginate running and paused sandboxes", sandbox=False)
async def test_list_both_pages(case):
    tag = unique("both")
    older, newer = await make(case, tag), await make(case, tag)
    await settle(newer.pause())
    query = SandboxQuery(metadata={"tag": tag}, state=[SandboxState.RUNNING, SandboxState.PAUSED])
    assert await listed(case, query=query, limit=1) == [
        (newer.sandbox_id, SandboxState.PAUSED), (older.sandbox_id, SandboxState.RUNNING)]


# --- metrics


async def points_of(case, **options):
    return await settle(case.sbx.get_metrics(**options))


@row("lifecycle/metrics: a point soon after the start")
async def test_metrics(case):
    points = await until("metrics", lambda: points_of(case), 25)
    for field in ("timestamp", "cpu_used_pct", "cpu_count", "mem_used", "mem_total", "disk_used", "disk_total"):
        assert getattr(points[0], field) is not None, field
    assert points[0].mem_total > 0 and points[0].disk_total > 0 and points[0].cpu_count >= 1
    assert 0 < points[0].mem_used < points[0].mem_total


@row("lifecycle/metrics: time range")
async def test_metrics_range(case):
    now = datetime.datetime.now(datetime.timezone.utc)
    slack = datetime.timedelta(seconds=10)
    start = now - slack
    await until("metrics", lambda: points_of(case), 25)
    end = datetime.datetime.now(datetime.timezone.utc) + slack
    within = await points_of(case, start=start, end=end)
    assert within
    for point in within:
        when = point.timestamp if point.timestamp.tzinfo else point.timestamp.replace(tzinfo=datetime.timezone.utc)
        assert start - slack <= when <= end + slack
    hour = datetime.timedelta(hours=1)
    assert await points_of(case, start=start - hour, end=end - hour) == []
