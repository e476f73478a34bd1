import asyncio
import datetime

import pytest
from e2b import InvalidArgumentException, SandboxException, SandboxQuery, SandboxState

from support import SandboxNotFoundException, row, settle, unique, until, visit

RUNNING = [SandboxState.RUNNING]


async def create(case, **options):
    sbx = await case.flavor.create(**options)
    case.defer(sbx.kill)
    return sbx


async def listed(case, **options):
    """All pages of a listing."""
    pages = case.flavor.Sandbox.list(**options)
    found = []
    while pages.has_next:
        found.extend(await settle(pages.next_items()))
    return found


def ids(entries):
    return [entry.sandbox_id for entry in entries]


# --- create


@row("sandbox/create: create is running", timeout=5)
async def test_create(case):
    assert await settle(case.sbx.is_running()) is True
    assert (await settle(case.sbx.get_info())).envd_version


@row("sandbox/create: metadata is listed", sandbox=False)
async def test_metadata(case):
    metadata = {"tag": unique("meta"), "test-key": "test value & more = ü"}
    sbx = await create(case, timeout=30, metadata=metadata)
    (found,) = [entry for entry in await listed(case) if entry.sandbox_id == sbx.sandbox_id]
    assert found.metadata == metadata


@row("sandbox/create: MCP gateway failure kills the sandbox", sandbox=False)
async def test_mcp_failure(case):
    tag = unique("mcp")
    with pytest.raises(SandboxException, match="Failed to start MCP gateway"):
        await case.flavor.create(mcp={"context7": {}}, metadata={"tag": tag}, timeout=30)
    assert await listed(case, query=SandboxQuery(metadata={"tag": tag}, state=RUNNING)) == []


@row("sandbox/create: invalid on_timeout type does not crash", sandbox=False)
async def test_on_timeout_none(case):
    sbx = await create(case, timeout=30, lifecycle={"on_timeout": None})
    assert await settle(sbx.is_running()) is True


@row("sandbox/lifecycle: invalid combinations are refused by the client", sandbox=False)
async def test_lifecycle(case):
    refused = (
        {"on_timeout": {"action": "kill", "keep_memory": False}},
        {"on_timeout": "kill", "auto_resume": True},
        {"on_timeout": {"action": "pause", "keep_memory": False}, "auto_resume": True},
    )
    for lifecycle in refused:
        with pytest.raises(InvalidArgumentException):
            await case.flavor.create(lifecycle=lifecycle)


# --- connect


@row("sandbox/connect: connect to running")
async def test_connect(case):
    same = await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id))
    assert same.sandbox_id == case.sbx.sandbox_id
    assert await settle(same.is_running()) is True
    assert (await settle(same.commands.run("echo same"))).stdout == "same\n"


@row("sandbox/connect: connect to secured", secure=True)
async def test_connect_secured(case):
    directory = unique("dir")
    await settle(case.sbx.files.make_dir(directory))
    same = await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id))
    assert await settle(same.files.list(directory)) == []
    await settle(same.files.write("hello.txt", "written by the second handle"))
    assert await settle(case.sbx.files.read("hello.txt")) == "written by the second handle"


@row("sandbox/connect: connect to killed")
async def test_connect_killed(case):
    await settle(case.sbx.kill())
    with pytest.raises(SandboxNotFoundException):
        await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id))
    assert await settle(case.sbx.is_running()) is False


@row("sandbox/connect: never shortens the timeout", timeout=300)
async def test_connect_never_shortens(case):
    before = (await settle(case.sbx.get_info())).end_at
    await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id, timeout=10))
    assert (await settle(case.sbx.get_info())).end_at == before


@row("sandbox/connect: extends the timeout", timeout=100)
async def test_connect_extends(case):
    before = (await settle(case.sbx.get_info())).end_at
    await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id, timeout=600))
    assert (await settle(case.sbx.get_info())).end_at > before


# --- kill, timeout, secure, info


@row("sandbox/kill: kill and not listed", sandbox=False)
async def test_kill(case):
    query = SandboxQuery(metadata={"tag": unique("kill")}, state=RUNNING)
    sbx = await create(case, metadata=query.metadata)
    assert ids(await listed(case, query=query)) == [sbx.sandbox_id]
    assert await settle(sbx.kill()) is True
    assert await listed(case, query=query) == []
    assert await settle(sbx.is_running()) is False


@row("sandbox/kill: kill by id", sandbox=False)
async def test_kill_by_id(case):
    sbx = await create(case)
    assert await settle(case.flavor.Sandbox.kill(sbx.sandbox_id)) is True
    assert await settle(case.flavor.Sandbox.kill(sbx.sandbox_id)) is False


@row("sandbox/kill: kill non-existing sandbox", sandbox=False)
async def test_kill_non_existing(case):
    assert await settle(case.flavor.Sandbox.kill("nonexistingsandbox")) is False


@row("sandbox/timeout: shorten timeout")
async def test_shorten(case):
    await settle(case.sbx.set_timeout(5))
    assert await settle(case.sbx.is_running()) is True
    await asyncio.sleep(6)
    assert await settle(case.sbx.is_running()) is False


@row("sandbox/timeout: shorten then lengthen timeout")
async def test_shorten_then_lengthen(case):
    await settle(case.sbx.set_timeout(5))
    await asyncio.sleep(1)
    await settle(case.sbx.set_timeout(10))
    await asyncio.sleep(6)
    assert await settle(case.sbx.is_running()) is True


@row("sandbox/timeout: end time is readable", timeout=120)
async def test_end_time(case):
    info = await settle(case.sbx.get_info())
    assert isinstance(info.end_at, datetime.datetime)
    assert abs((info.end_at - info.started_at).total_seconds() - 120) < 5


@row("sandbox/secure: token is present", secure=True)
async def test_secure(case):
    assert case.sbx._envd_access_token
    assert (await settle(case.sbx.commands.run("echo ok"))).stdout == "ok\n"


@row("sandbox/info: get info", metadata={"tag": "info"})
async def test_info(case):
    info = await settle(case.flavor.Sandbox.get_info(case.sbx.sandbox_id))
    assert info.sandbox_id == case.sbx.sandbox_id
    assert (info.state, info.name, info.metadata) == (SandboxState.RUNNING, "base", {"tag": "info"})
    assert info.cpu_count >= 1 and info.memory_mb >= 128
    assert info.started_at < info.end_at
    with pytest.raises(SandboxNotFoundException):
        await settle(case.flavor.Sandbox.get_info("nonexistingsandbox"))


@row("sandbox/host: ping server in a running sandbox")
async def test_ping_server(case):
    await settle(case.sbx.files.write("www/index.html", "served from inside"))
    await settle(case.sbx.commands.run("cd www && python -m http.server 8001", background=True, timeout=0))

    async def answered():
        status, _, body = await visit(case.sbx, 8001)
        assert status in (200, 502), f"status {status} of the server inside"
        return status == 200 and body == b"served from inside"

    await until("the server", answered)


# --- list


@row("sandbox/list: filter by metadata", sandbox=False)
async def test_list_metadata(case):
    tag = unique("list & filter = yes")
    sbx = await create(case, metadata={"tag": tag, "other": "x"})
    await create(case, metadata={"tag": unique("someone-else")})
    assert ids(await listed(case, query=SandboxQuery(metadata={"tag": tag}))) == [sbx.sandbox_id]
    assert await listed(case, query=SandboxQuery(metadata={"tag": tag, "other": "y"})) == []


@row("sandbox/list: running sandboxes", sandbox=False)
async def test_list_running(case):
    tag = unique("list")
    sbx = await create(case, metadata={"tag": tag})
    found = await listed(case, query=SandboxQuery(metadata={"tag": tag}, state=RUNNING))
    assert [(entry.sandbox_id, entry.state) for entry in found] == [(sbx.sandbox_id, SandboxState.RUNNING)]
    assert await listed(case, query=SandboxQuery(metadata={"tag": tag}, state=[SandboxState.PAUSED])) == []


@row("sandbox/list: paginate running sandboxes", sandbox=False)
async def test_list_pages(case):
    tag = unique("page")
    older = await create(case, metadata={"tag": tag})
    newer = await create(case, metadata={"tag": tag})
    pages = case.flavor.Sandbox.list(query=SandboxQuery(metadata={"tag": tag}, state=RUNNING), limit=1)
    assert ids(await settle(pages.next_items())) == [newer.sandbox_id]
    assert pages.has_next is True and pages.next_token
    assert ids(await settle(pages.next_items())) == [older.sandbox_id]
    assert pages.has_next is False and pages.next_token is None


@row("sandbox/list: paginate to the end", sandbox=False)
async def test_list_to_the_end(case):
    tag = unique("page")
    made = [await create(case, metadata={"tag": tag}) for _ in range(2)]
    found = await listed(case, query=SandboxQuery(metadata={"tag": tag}), limit=1)
    assert sorted(ids(found)) == sorted(ids(made))


@row("sandbox/list: order", sandbox=False)
async def test_list_order(case):
    tag = unique("order")
    older = await create(case, metadata={"tag": tag})
    newer = await create(case, metadata={"tag": tag})
    query = SandboxQuery(metadata={"tag": tag})
    assert ids(await listed(case, query=query, order="asc")) == ids([older, newer])
    assert ids(await listed(case, query=query, order="desc")) == ids([newer, older])


@row("sandbox/list: started after", sandbox=False)
async def test_list_started_after(case):
    tag = unique("after")
    sbx = await create(case, metadata={"tag": tag})
    started = (await settle(sbx.get_info())).started_at
    started = started.replace(microsecond=started.microsecond // 1000 * 1000)

    async def after(when):
        return ids(await listed(case, query=SandboxQuery(metadata={"tag": tag}, started_after=when)))

    assert await after(started) == [sbx.sandbox_id]
    assert await after(started + datetime.timedelta(seconds=1)) == []


@row("sandbox/list: template filter", sandbox=False)
async def test_list_template(case):
    tag = unique("template")
    sbx = await create(case, metadata={"tag": tag})
    template_id = (await settle(sbx.get_info())).template_id

    async def made_from(template):
        return ids(await listed(case, query=SandboxQuery(metadata={"tag": tag}, template=template)))

    assert await made_from(template_id) == [sbx.sandbox_id]
    assert await made_from("base") == [sbx.sandbox_id]
    assert await made_from("unknown-template") == []
