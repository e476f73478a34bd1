"""Watches: polled by the sync flavour, streamed by the async one."""

import pytest
from e2b import FileType, SandboxException
from e2b.sandbox.filesystem.watch_handle import FilesystemEventType

from support import FileNotFoundException, HOME, row, settle, unique, until

CREATE, WRITE, CHMOD = FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.CHMOD


class Watch:
    """Events of a directory, the same for both flavours: `expect` waits for one, `seen` holds all so far."""

    @classmethod
    async def start(cls, case, directory, **options):
        self = cls()
        self.seen = []
        self.polled = not case.flavor.is_async
        if self.polled:
            self.handle = case.sbx.files.watch_dir(directory, **options)
        else:
            self.handle = await case.sbx.files.watch_dir(directory, on_event=self.seen.append, **options)
        case.defer(self.handle.stop)
        return self

    async def expect(self, kind, name):
        def probe():
            if self.polled:
                self.seen.extend(self.handle.get_new_events())
            return next((event for event in self.seen if (event.type, event.name) == (kind, name)), None)

        return await until(f"{kind} of {name}, seen {self.seen}", probe)


@row("files/watch: directory changes")
async def test_changes(case):
    directory = unique("watched")
    await settle(case.sbx.files.remove(directory))
    await settle(case.sbx.files.write(f"{directory}/file.txt", "before"))
    watch = await Watch.start(case, directory)
    await settle(case.sbx.files.write(f"{directory}/file.txt", "after"))
    event = await watch.expect(WRITE, "file.txt")
    assert getattr(event, "entry", None) is None
    assert {event.name for event in watch.seen} == {"file.txt"}


@row("files/watch: recursive changes")
async def test_recursive(case):
    directory = unique("watched")
    await settle(case.sbx.files.make_dir(f"{directory}/nested"))
    watch = await Watch.start(case, directory, recursive=True)
    await settle(case.sbx.files.write(f"{directory}/nested/file.txt", "new"))
    if watch.polled:
        events = watch.handle.get_new_events()
        assert [event.type for event in events] == [CREATE, CHMOD, WRITE]
        assert {event.name for event in events} == {"nested/file.txt"}
    else:
        await watch.expect(WRITE, "nested/file.txt")


@row("files/watch: recursive after nested folder addition")
async def test_recursive_addition(case):
    directory = unique("watched")
    await settle(case.sbx.files.make_dir(directory))
    watch = await Watch.start(case, directory, recursive=True)
    await settle(case.sbx.files.make_dir(f"{directory}/nested"))
    await settle(case.sbx.files.write(f"{directory}/nested/file.txt", "inside"))
    if watch.polled:
        # Both are there in one poll right after the write.
        events = [(event.type, event.name) for event in watch.handle.get_new_events()]
        assert (CREATE, "nested") in events
        assert (WRITE, "nested/file.txt") in events
    else:
        await watch.expect(CREATE, "nested")
        await watch.expect(WRITE, "nested/file.txt")


@row("files/watch: with entry info")
async def test_entry(case):
    directory = unique("watched")
    await settle(case.sbx.files.write(f"{directory}/file.txt", "before"))
    watch = await Watch.start(case, directory, include_entry=True)
    await settle(case.sbx.files.write(f"{directory}/file.txt", "after"))
    entry = (await watch.expect(WRITE, "file.txt")).entry
    assert (entry.name, entry.path, entry.type) == ("file.txt", f"{HOME}/{directory}/file.txt", FileType.FILE)


@row("files/watch: with network mounts allowed")
async def test_network_mounts(case):
    directory = unique("watched")
    await settle(case.sbx.files.write(f"{directory}/file.txt", "before"))
    watch = await Watch.start(case, directory, allow_network_mounts=True)
    await settle(case.sbx.files.write(f"{directory}/file.txt", "after"))
    await watch.expect(WRITE, "file.txt")


@row("files/watch: non-existing directory")
async def test_missing(case):
    with pytest.raises(FileNotFoundException):
        await Watch.start(case, unique("absent"))


@row("files/watch: file")
async def test_file(case):
    name = unique("file.txt")
    await settle(case.sbx.files.write(name, "not a directory"))
    with pytest.raises(SandboxException):
        await Watch.start(case, name)


@row("files/watch: iterated polls", flavors=("sync",))
async def test_iterated(case):
    directory = unique("watched")
    case.sbx.files.make_dir(directory)
    handle = case.sbx.files.watch_dir(directory)
    assert handle.get_new_events() == []
    case.sbx.files.write(f"{directory}/file.txt", "new")
    events = handle.get_new_events()
    assert [event.type for event in events] == [CREATE, CHMOD, WRITE]
    assert {event.name for event in events} == {"file.txt"}

    case.sbx.files.write(f"{directory}/file.txt", "again")
    more = handle.get_new_events()
    assert [event.type for event in more].count(CREATE) == 0
    assert WRITE in [event.type for event in more]
    assert handle.get_new_events() == []
    handle.stop()
    with pytest.raises(SandboxException):
        handle.get_new_events()


@row("files/watch: secured sandbox with trailing slash", secure=True)
async def test_secured(case):
    watch = await Watch.start(case, "/home/user/")
    await settle(case.sbx.files.write("watched.txt", "content"))
    await watch.expect(WRITE, "watched.txt")
