import asyncio
import os

import pytest
from e2b import InvalidArgumentException, TimeoutException

from interpreter import SECURE, row, stdout
from support import settle, until


async def run(case, code, **options):
    return await settle(case.sbx.run_code(code, **options))


# --- basic


@row("code/basic: the last value", secure=False)
async def test_last_value(case):
    assert (await run(case, "x = 1; x")).text == "1"


@row("code/basic: secure, without public traffic", **SECURE)
async def test_secure(case):
    assert (await run(case, "x = 1; x")).text == "1"


@row("code/basic: a shell escape")
async def test_shell_escape(case):
    assert stdout(await run(case, "!pwd")).strip() == "/home/user"


# --- callbacks


async def called(case, name, code, plain=False):
    calls = []

    async def later(value):
        calls.append(value)

    callback = later if case.flavor.is_async and not plain else calls.append
    execution = await run(case, code, **{name: callback})
    assert len(calls) == 1, calls
    return execution, calls[0]


@row("code/callbacks: result")
async def test_on_result(case):
    execution, value = await called(case, "on_result", "x = 1;x")
    assert execution.results[0].text == "1" and value.is_main_result


@row("code/callbacks: plain functions in the async SDK", flavors=("async",))
async def test_on_result_plain(case):
    execution, _ = await called(case, "on_result", "x = 1;x", plain=True)
    assert execution.results[0].text == "1"


@row("code/callbacks: error")
async def test_on_error(case):
    execution, value = await called(case, "on_error", "undefined_name")
    assert execution.error.name == "NameError"
    assert "undefined_name" in value.traceback


@row("code/callbacks: stdout")
async def test_on_stdout(case):
    execution, _ = await called(case, "on_stdout", 'print("hello")')
    assert (execution.logs.stdout, execution.logs.stderr) == (["hello\n"], [])


@row("code/callbacks: stderr")
async def test_on_stderr(case):
    execution, _ = await called(case, "on_stderr", 'import sys\nprint("a complaint", file=sys.stderr)')
    assert (execution.logs.stdout, execution.logs.stderr) == ([], ["a complaint\n"])


# --- streaming


@row("code/streaming: output")
async def test_streaming_output(case):
    seen = []
    await run(case, "print(1)", on_stdout=seen.append)
    assert [(message.line, message.error) for message in seen] == [("1\n", False)]
    assert seen[0].timestamp


@row("code/streaming: errors")
async def test_streaming_errors(case):
    seen = []
    await run(case, "import sys\nprint(1, file=sys.stderr)", on_stderr=seen.append)
    assert [(message.line, message.error) for message in seen] == [("1\n", True)]


@row("code/streaming: results")
async def test_streaming_results(case):
    seen = []
    await run(case, """
        import matplotlib.pyplot as plt
        import numpy as np
        x = np.linspace(0, 4, 50)
        plt.plot(x, np.sin(x))
        plt.show()
        x
        """, on_result=seen.append)
    assert len(seen) == 2
    assert seen[0].png and not seen[0].is_main_result and seen[1].is_main_result


@row("code/streaming: output arrives while the cell runs")
async def test_streaming_at_once(case):
    seen = []
    code = ('import time\nprint("early", flush=True)\nwhile not __import__("os").path.exists("/tmp/go"): time.sleep(0.05)\nprint("late")')
    if case.flavor.is_async:
        running = asyncio.create_task(case.sbx.run_code(code, on_stdout=lambda message: seen.append(message.line)))
    else:
        running = asyncio.create_task(asyncio.to_thread(case.sbx.run_code, code, on_stdout=lambda message: seen.append(message.line)))
    await until("the first line", lambda: bool(seen))
    assert seen == ["early\n"]
    await settle(case.sbx.files.write("/tmp/go", ""))
    await running
    assert seen == ["early\n", "late\n"]


# --- state and contexts


@row("code/state: stays between runs")
async def test_state(case):
    await run(case, "x = 1")
    assert (await run(case, "x += 1; x")).text == "2"


@row("code/state: the count goes on after errors")
async def test_count(case):
    await run(case, "echo 'this is no Python'")
    assert (await run(case, "!pwd")).execution_count == 2


@row("code/contexts: another one")
async def test_context(case):
    assert len((await settle(case.sbx.create_code_context())).id) == 36


@row("code/contexts: do not share variables")
async def test_contexts_apart(case):
    context = await settle(case.sbx.create_code_context())
    await run(case, "x = 1")
    assert (await run(case, "x", context=context)).error.value == "name 'x' is not defined"
    await run(case, "y = 1", context=context)
    assert (await run(case, "y")).error.value == "name 'y' is not defined"
    assert (await run(case, "y", context=context)).text == "1"


@row("code/contexts: context and language together")
async def test_context_and_language(case):
    context = await settle(case.sbx.create_code_context())
    with pytest.raises(InvalidArgumentException):
        await run(case, "1", context=context, language="python")


# --- the sandbox


@row("code/sandbox: reconnect")
async def test_reconnect(case):
    await run(case, "kept = 5")
    same = await settle(case.flavor.Sandbox.connect(case.sbx.sandbox_id))
    assert (await settle(same.run_code("x = 1; x"))).text == "1"
    assert (await settle(same.run_code("kept"))).text == "5"


@row("code/sandbox: a timeout interrupts")
async def test_interrupt(case):
    await run(case, "kept = 7")
    with pytest.raises(TimeoutException):
        await run(case, "import time; time.sleep(300)", timeout=3)
    await asyncio.sleep(5)
    assert (await run(case, "1 + 1", timeout=10)).text == "2"
    assert (await run(case, "kept", timeout=10)).text == "7"


@row("code/sandbox: killed while a cell runs")
async def test_killed(case):
    sleep, wait = "import time; time.sleep(300)", {"timeout": 60}
    if case.flavor.is_async:
        running = asyncio.create_task(case.sbx.run_code(sleep, **wait))
    else:
        running = asyncio.create_task(asyncio.to_thread(case.sbx.run_code, sleep, **wait))
    await asyncio.sleep(2)
    await settle(case.flavor.Sandbox.kill(case.sbx.sandbox_id))
    with pytest.raises(TimeoutException, match="sandbox was killed while the request was in progress"):
        await running


async def health(case):
    return (await settle(case.sbx.commands.run('curl -s -o /dev/null -w "%{http_code}" http://0.0.0.0:49999/health'))).stdout


def attack(name, pattern):
    @row(f"code/service: lives after an attempt to kill {name}")
    async def attacked(case):
        assert await health(case) == "200"
        try:
            await settle(case.sbx.commands.run(f"kill -9 $(pgrep -f '{pattern}')", user="root"))
        except Exception:
            pass

        async def well():
            return await health(case) == "200"

        await until("the service", well, 30)
        assert (await run(case, "x = 1; x")).text == "1"

    return attacked


test_attack_jupyter = attack("jupyter", "jupyter server")
test_attack_uvicorn = attack("uvicorn", "uvicorn main:app")


@row("code/url: built by the client", sandbox=False)
async def test_url(case):
    from e2b import ConnectionConfig

    before = os.environ.pop("E2B_SANDBOX_URL", None)

    def made(**options):
        sandbox = object.__new__(case.flavor.Sandbox)
        config = ConnectionConfig(domain="example.dev", **options)
        for name, value in (("connection_config", config), ("sandbox_id", "test-sandbox-id"), ("sandbox_domain", "example.dev")):
            object.__setattr__(sandbox, f"_SandboxBase__{name}" if hasattr(type(sandbox), name) else name, value)
        return sandbox._jupyter_url

    try:
        assert made() == "https://49999-test-sandbox-id.example.dev"
        assert made(sandbox_url="http://localhost:8080") == "http://localhost:8080"
        os.environ["E2B_SANDBOX_URL"] = "http://sandbox.test:81"
        assert made() == "http://sandbox.test:81"
    finally:
        os.environ.pop("E2B_SANDBOX_URL", None)
        if before is not None:
            os.environ["E2B_SANDBOX_URL"] = before


# --- results


@row("code/results: a figure")
async def test_figure(case):
    (result,) = (await run(case, """
        import matplotlib.pyplot as plt
        import numpy as np
        x = np.linspace(0, 20, 100)
        plt.plot(x, np.sin(x))
        plt.show()
        """)).results
    assert result.png.startswith("iVBORw0KGgo")
    assert result.text.startswith("<Figure size ") and not result.extra


@row("code/results: a data frame")
async def test_data_frame(case):
    (result,) = (await run(case, """
        import pandas as pd
        pd.DataFrame({"a": [1, 2, 3]})
        """)).results
    assert result.data == {"a": [1, 2, 3]}
    assert "<table" in result.html


@row("code/results: a representation of its own")
async def test_own_representation(case):
    (result,) = (await run(case, "from IPython.display import display\ndisplay({'text/latex': r'\\text{CustomReprText}'}, raw=True)")).results
    assert list(result.formats()) == ["latex"]


IMAGE = "import numpy\nfrom PIL import Image\nimage = Image.fromarray(numpy.full((48, 64, 3), 128, numpy.uint8))\n"


@row("code/results: an image shown")
async def test_image_shown(case):
    assert (await run(case, IMAGE + "image.show()")).results[0].png


@row("code/results: an image as the last value")
async def test_image_last(case):
    assert (await run(case, IMAGE + "image")).results[0].png


@row("code/results: an image saved")
async def test_image_saved(case):
    assert (await run(case, IMAGE + 'image.save("test.png")')).results[0].png
