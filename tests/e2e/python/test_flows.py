"""What agents do with a code interpreter: the whole way, as one of them goes it with pinned releases."""

import os

from interpreter import LANGUAGES, TEMPLATE, row, shown, stdout
from support import settle

# An empty name means the SDK's own default.
DEFAULT = {} if "E2E_CODE_TEMPLATE" not in os.environ else {"template": TEMPLATE}
FIND = ("find /home/user -type f -newermt '{stamp}' -not -path '*/node_modules/*' -not -path '*/.git/*' 2>/dev/null")


async def create(case):
    sbx = await case.flavor.create(**{"template": "", "timeout": 300, **DEFAULT})
    case.defer(sbx.kill)
    return sbx


async def command(sbx, line):
    return (await settle(sbx.commands.run(line))).stdout


def in_language(language, cells):
    short = {"javascript": "js"}.get(language, language)

    @row(f"flows/execute: setup commands, code and files in {language}", sandbox=False)
    async def execute(case):
        sbx = await create(case)
        for line in ("mkdir -p /home/user/project", "echo prepared > /home/user/project/note.txt", "sudo -n true"):
            await command(sbx, line)
        # Stamps have whole seconds: what was there before must be older.
        await command(sbx, "touch -d '1 minute ago' /home/user/project/note.txt")
        stamp = (await command(sbx, "date -u +%Y-%m-%dT%H:%M:%S")).strip()
        execution = await settle(sbx.run_code(cells["write"], language=short, on_error=lambda error: sbx.kill()))
        assert execution.error is None, execution.error
        found = (await command(sbx, FIND.format(stamp=stamp))).split()
        assert found == ["/home/user/made.txt"]
        content = await settle(sbx.files.read(found[0], format="bytes"))
        assert bytes(content) == f"made by {language}".encode()
        assert (await command(sbx, f"stat -c %s {found[0]}")).strip() == str(len(content))
        assert await settle(sbx.kill()) is True
        assert await settle(sbx.kill()) is False

    @row(f"flows/steps: another client sees the state in {language}", sandbox=False)
    async def steps(case):
        sbx = await create(case)
        assert (await settle(sbx.run_code(cells["set"], language=short))).error is None
        other = await settle(case.flavor.Sandbox.connect(sandbox_id=sbx.sandbox_id))
        execution = await settle(other.run_code(cells["get"], language=short))
        assert execution.error is None, execution.error
        assert stdout(execution).strip() == "42"

    @row(f"flows/errors: the last words of a killed sandbox in {language}", sandbox=False)
    async def errors(case):
        sbx = await create(case)
        seen = []

        def on_error(error):
            seen.append(error.name)
            return sbx.kill()

        execution = await settle(sbx.run_code(cells["fail"], language=short, on_error=on_error))
        assert seen == [cells["fail_name"]]
        assert execution.error.name == cells["fail_name"]
        assert await settle(sbx.is_running()) is False
        assert await settle(sbx.kill()) is False

    for body in (execute, steps, errors):
        globals()[f"test_{body.__name__}_{language}"] = body


for one, its_cells in LANGUAGES.items():
    if one != "typescript":
        in_language(one, its_cells)


@row("flows/files: nothing else appears in the home directory", seconds=90)
async def test_clean_home(case):
    list_files = "find /home/user | sort"
    before = (await command(case.sbx, list_files)).split()
    cells = [(cells["cwd"], language) for language, cells in LANGUAGES.items()]
    plot = "import matplotlib.pyplot as plt, pandas, seaborn\nplt.plot([1, 2]); plt.title('水'); plt.show()\nimport json; json.dumps({})"
    for code, language in [*cells, (plot, "python"), ("!true", "python"), ("%%bash\ntrue", "python"), ("history", "bash")]:
        execution = await settle(case.sbx.run_code(code, language=language))
        assert execution.error is None, (language, execution.error)
    assert (await command(case.sbx, list_files)).split() == before


@row("flows/values: text of results in every language", seconds=90)
async def test_values(case):
    for language, cells in LANGUAGES.items():
        execution = await settle(case.sbx.run_code(cells["foo"], language=language))
        assert "default" in shown(execution, cells["at"])
        assert sum(bool(result.is_main_result) for result in execution.results) == (1 if cells["at"] == "result" else 0)
