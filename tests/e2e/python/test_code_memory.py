"""The code interpreter over pauses and forks."""

import pytest
from e2b import TimeoutException

from interpreter import LANGUAGES, SECURE, row, stdout
from support import control, settle


async def run(sbx, code, **options):
    return await settle(sbx.run_code(code, **options))


async def good(sbx, code, **options):
    execution = await run(sbx, code, **options)
    assert execution.error is None, execution.error
    return execution


async def pause(sbx):
    await settle(sbx.pause())
    assert (await control(sbx))["memoryTier"] == "dumped"


async def reconnects(case):
    await good(case.sbx, "import pandas as pd\nkept = pd.DataFrame({'a': range(1000)})\ndef double(x): return x * 2")
    await pause(case.sbx)
    same = await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id))
    assert (await run(same, "x = 1; x")).text == "1"
    assert (await run(same, "double(int(kept.a.sum()))")).text == "999000"
    # The handle from before the pause, and the count of the kernel.
    after = await run(case.sbx, "len(kept)")
    assert (after.text, after.execution_count) == ("1000", 4)


@row("code/memory: reconnect after a pause")
async def test_reconnect(case):
    await reconnects(case)


@row("code/memory: secure, without public traffic, after a pause", **SECURE)
async def test_reconnect_secure(case):
    await reconnects(case)


@row("code/memory: contexts of all languages after a pause", seconds=90)
async def test_contexts(case):
    sbx, spoken = case.sbx, ("python", "javascript", "bash", "r", "java")
    own = await settle(sbx.create_code_context(cwd="/usr/share"))
    await good(sbx, "only_here = 7", context=own)
    for language in spoken:
        await good(sbx, LANGUAGES[language]["set"], language=language)
    before = [context.id for context in await settle(sbx.list_code_contexts())]
    await pause(sbx)
    await settle(sbx.connect())
    assert [context.id for context in await settle(sbx.list_code_contexts())] == before
    for language in spoken:
        assert stdout(await good(sbx, LANGUAGES[language]["get"], language=language)).strip() == "42", language
    assert (await run(sbx, "import os; (only_here, os.getcwd())", context=own)).text == "(7, '/usr/share')"
    assert (await run(sbx, "only_here")).error.name == "NameError"
    # A kernel that starts after the resume.
    fresh = await settle(sbx.create_code_context())
    assert (await run(sbx, "1 + 1", context=fresh)).text == "2"


@row("code/memory: an interrupt after a pause")
async def test_interrupt(case):
    await good(case.sbx, "kept = 7")
    await pause(case.sbx)
    await settle(case.sbx.connect())
    with pytest.raises(TimeoutException):
        await run(case.sbx, "import time; time.sleep(300)", timeout=1.5)
    assert (await run(case.sbx, "kept", timeout=20)).text == "7"
    await settle(case.sbx.restart_code_context((await settle(case.sbx.list_code_contexts()))[0].id))
    assert (await run(case.sbx, "kept")).error.name == "NameError"


@row("code/memory: forks have variables of their own")
async def test_forks(case):
    await good(case.sbx, "numbers = [1, 2, 3]")
    forks = await settle(case.sbx.fork(count=2))
    for one in forks:
        assert isinstance(one, case.flavor.Sandbox), one
        case.defer(one.kill)
    for number, one in enumerate(forks):
        await good(one, f"numbers.append({number})")
    seen = [(await run(one, "numbers")).text for one in (case.sbx, *forks)]
    assert seen == ["[1, 2, 3]", "[1, 2, 3, 0]", "[1, 2, 3, 1]"]
