import random

import pytest
from e2b import FileType

from support import DEBUG, TIME_SCALE, row, unique, until

AUTHOR = {"author_name": "Sandbox Bot", "author_email": "sandbox@example.com"}
# A sandbox of this area lives only briefly: its dozen commands must be quick.
LIFE = {} if DEBUG else {"timeout": int(10 * TIME_SCALE)}


def place():
    return f"/tmp/test-git/{unique('r')}"


def repository(sbx):
    path = f"{place()}/repo"
    sbx.git.init(path, initial_branch="main")
    return path


def committed(sbx):
    path = repository(sbx)
    sbx.files.write(f"{path}/README.md", "hello\n")
    sbx.git.add(path)
    sbx.git.commit(path, "Initial commit", **AUTHOR)
    return path


def output(sbx, command, **options):
    return sbx.commands.run(command, **options).stdout.strip()


async def served(case):
    """A bare repository behind `git daemon` inside the sandbox; ends with the case."""
    sbx, base = case.sbx, place()
    sbx.git.init(f"{base}/remote.git", bare=True, initial_branch="main")
    for _ in range(5):
        port = random.randint(9418, 10418)
        daemon = sbx.commands.run(
            f"exec git daemon --reuseaddr --base-path={base} --export-all --enable=receive-pack "
            f"--listen=127.0.0.1 --port={port}",
            background=True,
            timeout=0,
        )
        case.defer(daemon.kill)
        url = f"git://127.0.0.1:{port}/remote.git"

        def state():
            listed = any(entry.pid == daemon.pid for entry in sbx.commands.list())
            probe = output(sbx, f"git ls-remote {url} >/dev/null 2>&1 && echo up || true")
            return (probe == "up" and listed and "up") or (not listed and "ended")

        if await until("git daemon", state) == "up":
            return url, base, daemon
    pytest.fail("no free port for git daemon")


def git_row(row_id):
    return row(row_id, flavors=("sync",), **LIFE)


@git_row("git/add: add stages files")
async def test_add(case):
    path = repository(case.sbx)
    case.sbx.files.write(f"{path}/README.md", "hello\n")
    case.sbx.git.add(path)
    (entry,) = case.sbx.git.status(path).file_status
    assert (entry.name, entry.status, entry.staged) == ("README.md", "added", True)


@git_row("git/branches: lists current and feature")
async def test_branches(case):
    path = committed(case.sbx)
    case.sbx.commands.run(f"git -C {path} branch feature")
    found = case.sbx.git.branches(path)
    assert found.current_branch == "main"
    assert sorted(found.branches) == ["feature", "main"]


@git_row("git/branches: checkoutBranch switches")
async def test_checkout(case):
    path = committed(case.sbx)
    case.sbx.commands.run(f"git -C {path} branch feature")
    case.sbx.git.checkout_branch(path, "feature")
    assert case.sbx.git.branches(path).current_branch == "feature"


@git_row("git/branches: createBranch creates and checks out")
async def test_create_branch(case):
    path = committed(case.sbx)
    case.sbx.git.create_branch(path, "feature")
    found = case.sbx.git.branches(path)
    assert found.current_branch == "feature" and "main" in found.branches


@git_row("git/branches: deleteBranch removes")
async def test_delete_branch(case):
    path = committed(case.sbx)
    case.sbx.commands.run(f"git -C {path} branch feature")
    case.sbx.git.delete_branch(path, "feature")
    assert case.sbx.git.branches(path).branches == ["main"]


@git_row("git/clone: clone fetches repo")
async def test_clone(case):
    url, base, daemon = await served(case)
    path = committed(case.sbx)
    case.sbx.git.remote_add(path, "origin", url)
    case.sbx.git.push(path, remote="origin", branch="main", set_upstream=True)
    case.sbx.git.clone(url, path=f"{base}/clone")
    assert case.sbx.files.read(f"{base}/clone/README.md") == "hello\n"
    assert daemon.kill() is True
    assert output(case.sbx, "echo still here") == "still here"


@git_row("git/commit: commit creates commit")
async def test_commit(case):
    path = committed(case.sbx)
    assert output(case.sbx, f"git -C {path} log -1 --pretty=%B") == "Initial commit"
    who = output(case.sbx, f"git -C {path} log -1 --pretty='%an <%ae>'")
    assert who == f"{AUTHOR['author_name']} <{AUTHOR['author_email']}>"


@git_row("git/commit: config fills missing author fields")
async def test_commit_config(case):
    path = repository(case.sbx)
    case.sbx.git.configure_user("Global Bot", "global@example.com")
    case.sbx.files.write(f"{path}/README.md", "hello\n")
    case.sbx.git.add(path)
    case.sbx.git.commit(path, "Initial commit", author_name="Override Bot")
    who = output(case.sbx, f"git -C {path} log -1 --pretty='%an <%ae>'")
    assert who == "Override Bot <global@example.com>"


@git_row("git/config: getConfig reads local")
async def test_get_config(case):
    path = repository(case.sbx)
    case.sbx.commands.run(f"git -C {path} config --local pull.rebase true")
    assert case.sbx.git.get_config("pull.rebase", scope="local", path=path) == "true"
    assert case.sbx.git.get_config("atoll.absent", scope="local", path=path) is None


@git_row("git/config: setConfig updates local")
async def test_set_config(case):
    path = repository(case.sbx)
    case.sbx.git.set_config("pull.rebase", "false", scope="local", path=path)
    assert output(case.sbx, f"git -C {path} config --local --get pull.rebase") == "false"


@git_row("git/config: configureUser sets global name and email")
async def test_configure_user(case):
    case.sbx.git.configure_user("Global Bot", "global@example.com")
    assert output(case.sbx, "git config --global --get user.name") == "Global Bot"
    assert output(case.sbx, "git config --global --get user.email") == "global@example.com"
    assert case.sbx.git.get_config("user.name", scope="global") == "Global Bot"


@git_row("git/auth: dangerouslyAuthenticate sets helper")
async def test_authenticate(case):
    case.sbx.git.dangerously_authenticate(username="git", password="token", host="example.com", protocol="https")
    assert output(case.sbx, "git config --global --get credential.helper") == "store"


@git_row("git/init: init creates repository")
async def test_init(case):
    path = repository(case.sbx)
    assert case.sbx.files.get_info(f"{path}/.git").type == FileType.DIR
    assert output(case.sbx, f"git -C {path} symbolic-ref --short HEAD") == "main"


@git_row("git/remote: remoteGet of a missing remote")
async def test_remote_get(case):
    assert case.sbx.git.remote_get(repository(case.sbx), "origin") is None


@git_row("git/remote: remoteAdd adds")
async def test_remote_add(case):
    path = repository(case.sbx)
    case.sbx.git.remote_add(path, "origin", "https://example.com/repo.git")
    assert case.sbx.git.remote_get(path, "origin") == "https://example.com/repo.git"


@git_row("git/remote: remoteAdd overwrite replaces")
async def test_remote_overwrite(case):
    path = repository(case.sbx)
    case.sbx.git.remote_add(path, "origin", "https://example.com/first.git")
    case.sbx.git.remote_add(path, "origin", "https://example.com/second.git", overwrite=True)
    assert case.sbx.git.remote_get(path, "origin") == "https://example.com/second.git"


@git_row("git/reset: hard discards changes")
async def test_reset(case):
    path = committed(case.sbx)
    case.sbx.files.write(f"{path}/README.md", "changed\n")
    assert not case.sbx.git.status(path).is_clean
    case.sbx.git.reset(path, mode="hard", target="HEAD")
    assert case.sbx.git.status(path).is_clean
    assert case.sbx.files.read(f"{path}/README.md") == "hello\n"


@git_row("git/restore: staged unstages")
async def test_restore_staged(case):
    path = committed(case.sbx)
    case.sbx.files.write(f"{path}/README.md", "changed\n")
    case.sbx.git.add(path)
    assert case.sbx.git.status(path).has_staged
    case.sbx.git.restore(path, paths=["README.md"], staged=True)
    status = case.sbx.git.status(path)
    assert (status.has_staged, status.has_changes) == (False, True)


@git_row("git/restore: worktree discards changes")
async def test_restore(case):
    path = committed(case.sbx)
    case.sbx.files.write(f"{path}/README.md", "changed\n")
    case.sbx.git.restore(path, paths=["README.md"])
    assert case.sbx.git.status(path).is_clean
    assert case.sbx.files.read(f"{path}/README.md") == "hello\n"


@git_row("git/status: untracked file")
async def test_status_untracked(case):
    path = repository(case.sbx)
    case.sbx.files.write(f"{path}/README.md", "hello\n")
    status = case.sbx.git.status(path)
    assert status.current_branch == "main"
    assert [(f.name, f.status, f.staged) for f in status.file_status] == [("README.md", "untracked", False)]
    flags = (status.is_clean, status.has_changes, status.has_staged, status.has_untracked, status.has_conflicts)
    assert flags == (False, True, False, True, False)
    counts = (status.total_count, status.staged_count, status.unstaged_count)
    assert counts + (status.untracked_count, status.conflict_count) == (1, 0, 1, 1, 0)


@git_row("git/status: added, modified, deleted, renamed")
async def test_status_kinds(case):
    path = repository(case.sbx)
    names = ("README.md", "DELETE.md", "RENAME.md")
    case.sbx.files.write_files([{"path": f"{path}/{n}", "data": f"the content of {n}\n"} for n in names])
    case.sbx.git.add(path)
    case.sbx.git.commit(path, "Initial commit", **AUTHOR)
    case.sbx.files.write(f"{path}/README.md", "changed\n")
    case.sbx.commands.run("git mv RENAME.md RENAMED.md && git rm -q DELETE.md", cwd=path)
    case.sbx.files.write(f"{path}/NEW.md", "new\n")
    case.sbx.git.add(path, files=["NEW.md"])
    status = case.sbx.git.status(path)
    assert (status.total_count, status.staged_count) == (4, 3)
    by = {entry.name: entry for entry in status.file_status}
    assert (by["README.md"].status, by["README.md"].staged) == ("modified", False)
    assert by["DELETE.md"].status == "deleted"
    assert (by["RENAMED.md"].status, by["RENAMED.md"].renamed_from) == ("renamed", "RENAME.md")
    assert by["NEW.md"].status == "added"


@git_row("git/sync: push updates remote")
async def test_push(case):
    url, base, _ = await served(case)
    path = committed(case.sbx)
    case.sbx.git.remote_add(path, "origin", url)
    case.sbx.git.push(path, remote="origin", branch="main", set_upstream=True)
    assert output(case.sbx, f"git --git-dir={base}/remote.git log -1 --pretty=%B main") == "Initial commit"


@git_row("git/sync: push without upstream")
async def test_push_no_upstream(case):
    url, _, _ = await served(case)
    path = committed(case.sbx)
    case.sbx.git.remote_add(path, "origin", url)
    with pytest.raises(Exception, match="(?i)no upstream branch is configured"):
        case.sbx.git.push(path, set_upstream=False)


@git_row("git/sync: pull updates clone")
async def test_pull(case):
    url, base, _ = await served(case)
    path = committed(case.sbx)
    case.sbx.git.remote_add(path, "origin", url)
    case.sbx.git.push(path, remote="origin", branch="main", set_upstream=True)
    case.sbx.git.clone(url, path=f"{base}/clone")
    case.sbx.files.write(f"{path}/README.md", "second\n")
    case.sbx.git.add(path)
    case.sbx.git.commit(path, "Second commit", **AUTHOR)
    case.sbx.git.push(path)
    case.sbx.git.pull(f"{base}/clone")
    assert case.sbx.files.read(f"{base}/clone/README.md") == "second\n"


@git_row("git/sync: pull without upstream")
async def test_pull_no_upstream(case):
    url, _, _ = await served(case)
    path = committed(case.sbx)
    case.sbx.git.remote_add(path, "origin", url)
    with pytest.raises(Exception, match="(?i)no upstream branch is configured"):
        case.sbx.git.pull(path)
