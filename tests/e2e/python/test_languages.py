from interpreter import LANGUAGES, SECURE, row, shown
from support import settle


async def run(case, code, **options):
    return await settle(case.sbx.run_code(code, **options))


# --- contexts


async def made(case, **options):
    context = await settle(case.sbx.create_code_context(**options))
    last = (await settle(case.sbx.list_code_contexts()))[-1]
    assert (last.id, last.language, last.cwd) == (context.id, context.language, context.cwd)
    return context


async def create(case):
    context = await made(case)
    assert (context.language, context.cwd) == ("python", "/home/user")


async def remove(case):
    context = await settle(case.sbx.create_code_context())
    await settle(case.sbx.remove_code_context(context))
    assert context.id not in [other.id for other in await settle(case.sbx.list_code_contexts())]


async def listed(case):
    languages = [context.language for context in await settle(case.sbx.list_code_contexts())]
    assert languages[:2] == ["python", "javascript"]


async def restart(case):
    context = await settle(case.sbx.create_code_context())
    await run(case, "x = 1", context=context)
    await settle(case.sbx.restart_code_context(context))
    execution = await run(case, "x", context=context)
    assert (execution.error.name, execution.error.value, execution.execution_count) == ("NameError", "name 'x' is not defined", 1)


for name, body in (("create", create), ("remove", remove), ("list", listed), ("restart", restart)):
    globals()[f"test_context_{name}"] = row(f"languages/contexts: {name}")(body)
    globals()[f"test_context_{name}_secure"] = row(f"languages/contexts: {name}, secure", **SECURE)(body)


@row("languages/contexts: create with language and directory")
async def test_context_options(case):
    context = await made(case, language="python", cwd="/root")
    assert (context.language, context.cwd) == ("python", "/root")
    assert (await run(case, "1", context=context)).text == "1"


# --- output


async def chunks(case, language, code):
    execution = await run(case, code, language=language)
    assert execution.error is None
    return execution.logs.stdout


@row("languages/output: javascript")
async def test_javascript(case):
    assert await chunks(case, "js", 'console.log("Hello, World!")') == ["Hello, World!\n"]


@row("languages/output: typescript")
async def test_typescript(case):
    assert await chunks(case, "ts", 'const message: string = "Hello, World!"; console.log(message)') == ["Hello, World!\n"]


@row("languages/output: javascript import")
async def test_import(case):
    assert await chunks(case, "js", """
        import { readFileSync } from 'fs'
        console.log(typeof readFileSync)
        """) == ["function\n"]


@row("languages/output: javascript await")
async def test_await(case):
    execution = await run(case, """
        await Promise.resolve('Hello World!')
        """, language="js")
    assert execution.text == "Hello World!"


@row("languages/output: r")
async def test_r(case):
    assert await chunks(case, "r", 'print("Hello, World!")') == ['[1] "Hello, World!"\n']


@row("languages/output: java")
async def test_java(case):
    assert (await chunks(case, "java", 'System.out.println("Hello, World!")'))[0] == "Hello, World!"


@row("languages/output: bash")
async def test_bash(case):
    assert await chunks(case, "bash", "echo 1; echo 2 >&2") == ["1\n", "2\n"]


# --- directory and variables, in every language


def in_every_way(language, cells):
    def value(text):
        return f'[1] "{text}"' if language == "r" else text

    short = {"javascript": "js", "typescript": "ts"}.get(language, language)
    env = {"envs": {"TEST_ENV_VAR": "supertest"}}

    @row(f"languages/cwd: {language}")
    async def cwd(case):
        assert shown(await run(case, cells["cwd"], language=short), cells["cwd_at"]) == value("/home/user")

    @row(f"languages/env: of the sandbox in {language}", **env)
    async def of_the_sandbox(case):
        assert shown(await run(case, cells["env"], language=language), cells["at"]) == value("supertest")

    @row(f"languages/env: of one run in {language}")
    async def of_one_run(case):
        assert shown(await run(case, cells["foo"], language=language, envs={"FOO": "bar"}), cells["at"]) == value("bar")
        assert shown(await run(case, cells["foo"], language=language), cells["at"]) == value("default")

    @row(f"languages/env: overwritten for one run in {language}", **env)
    async def overwritten(case):
        execution = await run(case, cells["env"], language=language, envs={"TEST_ENV_VAR": "overwrite"})
        assert shown(execution, cells["at"]) == value("overwrite")
        assert shown(await run(case, cells["env"], language=language), cells["at"]) == value("supertest")

    for body in (cwd, of_the_sandbox, of_one_run, overwritten):
        globals()[f"test_{body.__name__}_{language}"] = body


for one, its_cells in LANGUAGES.items():
    in_every_way(one, its_cells)
