"""Snapshots and forks: what both SDKs offer around the memory of a sandbox."""

import time

import pytest
from e2b import SandboxException

from support import SandboxNotFoundException, control, row, settle, unique, until, visit


async def line(sbx, command, **options):
    return (await settle(sbx.commands.run(command, **options))).stdout.strip()


async def start(sbx, command):
    return await settle(sbx.commands.run(command, background=True, timeout=0))


async def boot_id(sbx):
    return await settle(sbx.files.read("/proc/sys/kernel/random/boot_id"))


async def pids(sbx):
    return [entry.pid for entry in await settle(sbx.commands.list())]


async def take(case, **options):
    """A snapshot that goes when the case ends; deferred calls run in reverse order, so sandboxes made from it go first."""
    snapshot = await settle(case.sbx.create_snapshot(**options))
    case.defer(lambda: case.flavor.Sandbox.delete_snapshot(snapshot.snapshot_id))
    assert snapshot.snapshot_id
    return snapshot


async def made_from(case, snapshot_id, **options):
    sbx = await case.flavor.create(template=snapshot_id, **options)
    case.defer(sbx.kill)
    return sbx


async def everything(pages):
    found = []
    while pages.has_next:
        found += await settle(pages.next_items())
    return found


def ids(snapshots):
    return [snapshot.snapshot_id for snapshot in snapshots]


# --- pause


@row("snapshots/pause: everything comes back from files", seconds=60, envs={"KEPT": "yes"})
async def test_everything(case):
    sbx = case.sbx
    await settle(sbx.files.write("www/index.html", "served from files"))
    await start(sbx, "cd www && exec python3 -m http.server 8000")

    async def up():
        return (await visit(sbx, 8000))[0] == 200

    await until("the server", up)
    sleeper = await start(sbx, "sleep 3600")
    await settle(sbx.commands.run("echo temporary > /tmp/mark && echo in memory > /dev/shm/mark"))
    before = await boot_id(sbx)
    assert (await control(sbx))["memoryTier"] == "running"

    await settle(sbx.pause())
    info = await control(sbx)
    assert (info["memoryTier"], info.get("memoryReason") or "") == ("dumped", "")
    assert (await visit(sbx, 8000))[0] == 502

    same = await settle(case.flavor.Sandbox.connect(sbx.sandbox_id))
    assert same.sandbox_id == sbx.sandbox_id
    assert (await visit(sbx, 8000))[2] == b"served from files"
    assert await boot_id(sbx) == before
    assert await line(sbx, "cat /tmp/mark /dev/shm/mark; echo $KEPT") == "temporary\nin memory\nyes"
    assert sleeper.pid in await pids(same)
    again = await settle(same.commands.connect(sleeper.pid))
    assert await settle(again.kill()) is True
    assert (await control(sbx))["memoryTier"] == "running"


# --- create


@row("snapshots/create: of a sandbox", seconds=60)
async def test_create(case):
    end_at = (await settle(case.sbx.get_info())).end_at
    snapshot = await take(case)
    assert ":" in snapshot.snapshot_id
    # The source goes on as before.
    assert await settle(case.sbx.is_running()) is True
    assert (await settle(case.sbx.get_info())).end_at == end_at
    assert await line(case.sbx, "echo on") == "on"
    assert await settle(case.flavor.Sandbox.delete_snapshot(snapshot.snapshot_id)) is True


@row("snapshots/create: by id", seconds=60)
async def test_create_by_id(case):
    snapshot = await settle(case.flavor.Sandbox.create_snapshot(case.sbx.sandbox_id))
    case.defer(lambda: case.flavor.Sandbox.delete_snapshot(snapshot.snapshot_id))
    assert snapshot.snapshot_id


@row("snapshots/create: with a name", seconds=60)
async def test_create_named(case):
    name = unique("named")
    snapshot = await take(case, name=name)
    assert any(name in entry for entry in snapshot.names), snapshot.names
    assert name in snapshot.snapshot_id
    # The same name means the same snapshot with new content.
    await settle(case.sbx.files.write("second.txt", "second"))
    assert (await settle(case.sbx.create_snapshot(name=name))).snapshot_id == snapshot.snapshot_id
    # The name alone will do.
    for reference in (snapshot.snapshot_id, name):
        made = await made_from(case, reference)
        assert await settle(made.files.read("second.txt")) == "second"


@row("snapshots/create: the disk only", seconds=60)
async def test_create_disk_only(case):
    await settle(case.sbx.files.write("mark.txt", "on disk"))
    sleeper = await start(case.sbx, "sleep 3600")
    before = await boot_id(case.sbx)
    snapshot = await take(case, mode="filesystem")
    made = await made_from(case, snapshot.snapshot_id)
    assert await settle(made.files.read("mark.txt")) == "on disk"
    assert await boot_id(made) != before
    assert sleeper.pid not in await pids(made)
    assert await boot_id(case.sbx) == before


@row("snapshots/create: of a killed sandbox")
async def test_create_killed(case):
    await settle(case.sbx.kill())
    with pytest.raises(SandboxNotFoundException):
        await settle(case.sbx.create_snapshot())


# --- sandboxes from snapshots


@row("snapshots/sandbox: from a snapshot", seconds=60)
async def test_from_snapshot(case):
    await settle(case.sbx.files.write("mark.txt", "of the source"))
    snapshot = await take(case)
    await settle(case.sbx.files.write("mark.txt", "changed since"))
    made = await made_from(case, snapshot.snapshot_id, metadata={"made": "from a snapshot"})
    assert made.sandbox_id != case.sbx.sandbox_id
    assert await settle(made.files.read("mark.txt")) == "of the source"
    assert await settle(case.sbx.files.read("mark.txt")) == "changed since"
    assert (await settle(made.get_info())).metadata == {"made": "from a snapshot"}


@row("snapshots/sandbox: two from one snapshot", seconds=60)
async def test_two_from_snapshot(case):
    await settle(case.sbx.files.write("mark.txt", "shared"))
    snapshot = await take(case)
    one = await made_from(case, snapshot.snapshot_id)
    two = await made_from(case, snapshot.snapshot_id)
    assert one.sandbox_id != two.sandbox_id
    await settle(one.files.write("mark.txt", "one"))
    await settle(two.files.write("own.txt", "two"))
    assert await settle(two.files.read("mark.txt")) == "shared"
    assert await settle(one.files.exists("own.txt")) is False
    assert await settle(case.sbx.files.read("mark.txt")) == "shared"


@row("snapshots/sandbox: directories and files", seconds=60)
async def test_filesystem(case):
    await line(case.sbx, "mkdir -p app/src app/empty && echo alpha > app/src/a.txt && echo beta > app/b.txt && ln -s src/a.txt app/link && chmod 750 app/b.txt")
    await line(case.sbx, "rm -f /etc/debian_version; mkdir -p /etc/own && echo of root > /etc/own/file", user="root")
    look = r"cd app && find . -printf '%p %y %m %u %l\n' | sort && cat src/a.txt b.txt link /etc/own/file && ls /etc/debian_version 2>&1 | tail -c 12"
    before = await line(case.sbx, look)
    made = await made_from(case, (await take(case)).snapshot_id)
    assert await line(made, look) == before


@row("snapshots/sandbox: processes and memory come along", seconds=60)
async def test_processes(case):
    counter = await start(case.sbx, """python3 -uc "import time
n = 1000
while True:
    n += 1
    open('/dev/shm/n', 'w').write(str(n))
    time.sleep(0.02)" """)

    async def read(sbx):
        return int(await settle(sbx.files.read("/dev/shm/n")) or 0)

    async def counts_on(sbx):
        since = await read(sbx)
        end = time.monotonic() + 10
        while await read(sbx) <= since:
            assert time.monotonic() < end, "it stands still"
        return since

    await until("the counter", lambda: case.sbx.files.exists("/dev/shm/n"))
    made = await made_from(case, (await take(case)).snapshot_id)
    assert counter.pid in await pids(made)
    await counts_on(made)
    assert await read(made) > 1000
    # Its end is its own.
    await settle(made.commands.kill(counter.pid))
    await counts_on(case.sbx)


# --- list


@row("snapshots/list: all", seconds=60)
async def test_list(case):
    snapshot = await take(case)
    # Newest first: the first page has it.
    assert snapshot.snapshot_id in ids(await settle(case.flavor.Sandbox.list_snapshots().next_items()))


@row("snapshots/list: of one sandbox", seconds=60, timeout=120)
async def test_list_of_sandbox(case):
    first, second = (await take(case)).snapshot_id, (await take(case)).snapshot_id
    assert ids(await everything(case.sbx.list_snapshots())) == [second, first]
    assert ids(await everything(case.flavor.Sandbox.list_snapshots(sandbox_id=case.sbx.sandbox_id))) == [second, first]
    # In pages of one.
    pages = case.sbx.list_snapshots(limit=1)
    assert ids(await settle(pages.next_items())) == [second]
    assert pages.has_next and pages.next_token
    assert ids(await settle(pages.next_items())) == [first]
    assert not pages.has_next


@row("snapshots/list: by name", seconds=60)
async def test_list_by_name(case):
    name = unique("listed")
    snapshot = await take(case, name=name)
    await take(case)
    assert ids(await everything(case.flavor.Sandbox.list_snapshots(name=name))) == [snapshot.snapshot_id]
    assert await everything(case.flavor.Sandbox.list_snapshots(name=unique("unknown"))) == []


# --- delete


@row("snapshots/delete: once and again", seconds=60)
async def test_delete(case):
    snapshot_id = (await settle(case.sbx.create_snapshot())).snapshot_id
    assert await settle(case.flavor.Sandbox.delete_snapshot(snapshot_id)) is True
    assert await settle(case.flavor.Sandbox.delete_snapshot(snapshot_id)) is False
    assert await everything(case.sbx.list_snapshots()) == []
    with pytest.raises(SandboxException):
        await case.flavor.create(template=snapshot_id)


@row("snapshots/delete: not under a sandbox made from it", seconds=60)
async def test_delete_used(case):
    snapshot_id = (await take(case)).snapshot_id
    made = await made_from(case, snapshot_id)
    with pytest.raises(SandboxException):
        await settle(case.flavor.Sandbox.delete_snapshot(snapshot_id))
    await settle(made.pause())
    with pytest.raises(SandboxException):
        await settle(case.flavor.Sandbox.delete_snapshot(snapshot_id))
    await settle(made.kill())
    assert await settle(case.flavor.Sandbox.delete_snapshot(snapshot_id)) is True
    assert await settle(case.sbx.is_running()) is True


# --- fork


async def fork(case, **options):
    forks = await settle(case.sbx.fork(**options))
    for one in forks:
        assert isinstance(one, case.flavor.Sandbox), one
        case.defer(one.kill)
    return forks


@row("snapshots/fork: one", seconds=60, metadata={"kind": "parent"}, envs={"KEPT": "yes"})
async def test_fork(case):
    await settle(case.sbx.files.write("mark.txt", "of the parent"))
    sleeper = await start(case.sbx, "sleep 3600")
    end_at = (await settle(case.sbx.get_info())).end_at
    (copy,) = await fork(case)
    assert copy.sandbox_id != case.sbx.sandbox_id
    assert await settle(case.sbx.is_running()) and await settle(copy.is_running())
    assert await settle(copy.files.read("mark.txt")) == "of the parent"
    assert await line(copy, "echo $KEPT") == "yes"
    assert sleeper.pid in await pids(copy)
    # Each has its own files from now on.
    await settle(copy.files.write("mark.txt", "of the fork"))
    await settle(case.sbx.files.write("later.txt", "only here"))
    assert await settle(case.sbx.files.read("mark.txt")) == "of the parent"
    assert await settle(copy.files.exists("later.txt")) is False
    parent, child = await settle(case.sbx.get_info()), await settle(copy.get_info())
    assert parent.end_at == end_at
    assert (child.metadata, child.template_id) == ({"kind": "parent"}, parent.template_id)
    await settle(copy.kill())
    assert await line(case.sbx, "echo undisturbed") == "undisturbed"


@row("snapshots/fork: several", seconds=60)
async def test_fork_several(case):
    await settle(case.sbx.files.write("mark.txt", "shared"))
    forks = await fork(case, count=2, timeout=90)
    assert len({one.sandbox_id for one in (case.sbx, *forks)}) == 3
    for number, one in enumerate(forks):
        assert await settle(one.files.read("mark.txt")) == "shared"
        await settle(one.files.write("mark.txt", f"fork {number}"))
        assert (await settle(one.get_info())).end_at.timestamp() - time.time() < 91
    assert await settle(forks[0].files.read("mark.txt")) == "fork 0"
    assert await settle(case.sbx.files.read("mark.txt")) == "shared"


@row("snapshots/fork: by id", seconds=60)
async def test_fork_by_id(case):
    (copy,) = await settle(case.flavor.Sandbox.fork(case.sbx.sandbox_id))
    assert isinstance(copy, case.flavor.Sandbox), copy
    case.defer(copy.kill)
    assert await settle(copy.is_running()) is True


@row("snapshots/fork: of a killed sandbox")
async def test_fork_killed(case):
    await settle(case.sbx.kill())
    with pytest.raises(SandboxNotFoundException):
        await settle(case.sbx.fork())
    with pytest.raises(SandboxNotFoundException):
        await settle(case.flavor.Sandbox.fork(case.sbx.sandbox_id))


@row("snapshots/fork: of a paused sandbox", seconds=60)
async def test_fork_paused(case):
    await settle(case.sbx.pause())
    with pytest.raises(SandboxException, match="paused"):
        await settle(case.sbx.fork())
    await settle(case.sbx.connect())
    assert await line(case.sbx, "echo well") == "well"


@row("snapshots/fork: counts that make no sense")
async def test_fork_counts(case):
    for count in (0, 101):
        with pytest.raises(Exception):
            await settle(case.sbx.fork(count=count))
    assert await line(case.sbx, "echo well") == "well"
