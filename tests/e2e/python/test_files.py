import datetime
import io

import pytest
from e2b import FileType, InvalidArgumentException, NotEnoughSpaceException, NotFoundException

from support import HOME, OLD, FileNotFoundException, row, settle, unique


def kinds(entries):
    return [(entry.name, entry.type) for entry in entries]


async def stdout(case, command, **options):
    return (await settle(case.sbx.commands.run(command, **options))).stdout


# --- encoding


@row("files/encoding: write and read file with gzip")
async def test_gzip(case):
    name = unique("gzip.txt")
    info = await settle(case.sbx.files.write(name, "compressed on the way", gzip=True))
    assert (info.name, FileType(info.type), info.path) == (name, FileType.FILE, f"{HOME}/{name}")
    assert await settle(case.sbx.files.read(name, gzip=True)) == "compressed on the way"


@row("files/encoding: write with gzip and read without encoding")
async def test_gzip_plain(case):
    name = unique("gzip.txt")
    await settle(case.sbx.files.write(name, "stored plainly", gzip=True))
    assert await settle(case.sbx.files.read(name)) == "stored plainly"
    assert await stdout(case, f"cat {HOME}/{name}") == "stored plainly"


@row("files/encoding: write several files with gzip")
async def test_gzip_several(case):
    files = [{"path": unique(f"gzip{n}.txt"), "data": f"content {n}"} for n in range(3)]
    infos = await settle(case.sbx.files.write_files(files, gzip=True))
    assert [info.path for info in infos] == [f"{HOME}/{file['path']}" for file in files]
    for file in files:
        assert await settle(case.sbx.files.read(file["path"])) == file["data"]


@row("files/encoding: read file as bytes with gzip")
async def test_gzip_bytes(case):
    name = unique("gzip.bin")
    await settle(case.sbx.files.write(name, "bytes, too", gzip=True))
    content = await settle(case.sbx.files.read(name, format="bytes", gzip=True))
    assert isinstance(content, bytearray) and content == b"bytes, too"


# --- exists, info


@row("files/exists: file exists")
async def test_exists(case):
    name = unique("exists.txt")
    assert await settle(case.sbx.files.exists(name)) is False
    await settle(case.sbx.files.write(name, "here"))
    assert await settle(case.sbx.files.exists(name)) is True


@row("files/info: file")
async def test_info_file(case):
    name = unique("info.txt")
    await settle(case.sbx.files.write(name, "test"))
    cwd = (await stdout(case, "pwd")).strip()
    info = await settle(case.sbx.files.get_info(name))
    assert (info.name, FileType(info.type), info.path) == (name, FileType.FILE, f"{cwd}/{name}")
    assert (info.size, info.mode, info.permissions) == (4, 0o644, "-rw-r--r--")
    assert (info.owner, info.group) == ("user", "user")
    assert OLD or info.modified_time.tzinfo is not None
    # Naive in old releases.
    modified = info.modified_time.replace(tzinfo=datetime.timezone.utc) if OLD else info.modified_time
    age = datetime.datetime.now(datetime.timezone.utc) - modified
    assert abs(age.total_seconds()) < 60
    assert info.symlink_target is None


@row("files/info: file that does not exist")
async def test_info_missing_file(case):
    with pytest.raises(FileNotFoundException):
        await settle(case.sbx.files.get_info(unique("absent.txt")))


@row("files/info: directory")
async def test_info_directory(case):
    name = unique("dir")
    await settle(case.sbx.files.make_dir(name))
    info = await settle(case.sbx.files.get_info(name))
    assert (info.name, FileType(info.type), info.path) == (name, FileType.DIR, f"{HOME}/{name}")
    assert info.size > 0
    assert (info.mode, info.permissions) == (0o755, "drwxr-xr-x")
    assert (info.owner, info.group) == ("user", "user")
    assert OLD or info.modified_time.tzinfo is not None


@row("files/info: directory that does not exist")
async def test_info_missing_directory(case):
    with pytest.raises(FileNotFoundException):
        await settle(case.sbx.files.get_info(f"{unique('absent')}/deeper"))


@row("files/info: symlink")
async def test_info_symlink(case):
    directory = unique("links")
    await settle(case.sbx.files.write(f"{directory}/target.txt", "pointed at"))
    # A relative working directory counts from the home directory.
    await stdout(case, "ln -s target.txt link.txt", cwd=directory)
    info = await settle(case.sbx.files.get_info(f"{directory}/link.txt"))
    assert info.name == "link.txt"
    assert info.symlink_target == f"{HOME}/{directory}/target.txt"
    assert info.type == FileType.FILE


# --- list


@row("files/list: directory by depth")
async def test_list_depth(case):
    root = f"{HOME}/{unique('tree')}"
    files = ["subdir2/f2_2.txt", "subdir1/f1_2.txt", "file1.txt", "subdir2/f2_1.txt", "subdir1/f1_1.txt"]
    await settle(case.sbx.files.write_files([{"path": f"{root}/{file}", "data": file} for file in files]))
    shallow = ["file1.txt", "subdir1", "subdir2"]
    deep = ["file1.txt", "subdir1", "subdir1/f1_1.txt", "subdir1/f1_2.txt"]
    deep += ["subdir2", "subdir2/f2_1.txt", "subdir2/f2_2.txt"]
    for depth, wanted in [(None, shallow), (1, shallow), (2, deep), (3, deep)]:
        entries = await settle(case.sbx.files.list(root, depth=depth))
        assert [entry.path for entry in entries] == [f"{root}/{name}" for name in wanted], depth
        expected = [
            (name.split("/")[-1], FileType.FILE if name.endswith(".txt") else FileType.DIR) for name in wanted
        ]
        assert kinds(entries) == expected


@row("files/list: invalid depth")
async def test_list_invalid_depth(case):
    for depth in (0, -1):
        with pytest.raises(InvalidArgumentException, match="depth should be at least 1"):
            await settle(case.sbx.files.list("/", depth=depth))


@row("files/list: file entry details")
async def test_list_file_details(case):
    root = f"{HOME}/{unique('one')}"
    await settle(case.sbx.files.write(f"{root}/only.txt", "Hello, World!"))
    (entry,) = await settle(case.sbx.files.list(root))
    assert (entry.name, entry.path, entry.type) == ("only.txt", f"{root}/only.txt", FileType.FILE)
    assert (entry.mode, entry.permissions, entry.size) == (0o644, "-rw-r--r--", 13)
    assert (entry.owner, entry.group) == ("user", "user")
    assert entry.modified_time is not None and entry.symlink_target is None


@row("files/list: directory entry details")
async def test_list_directory_details(case):
    root = f"{HOME}/{unique('one')}"
    await settle(case.sbx.files.make_dir(f"{root}/inner"))
    (entry,) = await settle(case.sbx.files.list(root))
    assert (entry.name, entry.path, entry.type) == ("inner", f"{root}/inner", FileType.DIR)
    assert (entry.mode, entry.permissions) == (0o755, "drwxr-xr-x")
    assert (entry.owner, entry.group) == ("user", "user")


@row("files/list: mixed entries")
async def test_list_mixed(case):
    root = f"{HOME}/{unique('mixed')}"
    await settle(case.sbx.files.make_dir(f"{root}/subdir"))
    await settle(case.sbx.files.write(f"{root}/file1.txt", "one"))
    await settle(case.sbx.files.write(f"{root}/file2.txt", "two"))
    entries = await settle(case.sbx.files.list(root))
    assert kinds(entries) == [("file1.txt", FileType.FILE), ("file2.txt", FileType.FILE), ("subdir", FileType.DIR)]


# --- directories


@row("files/makeDir: new directory")
async def test_make_dir(case):
    name = unique("made")
    assert await settle(case.sbx.files.make_dir(name)) is True
    assert await settle(case.sbx.files.exists(name)) is True


@row("files/makeDir: existing directory")
async def test_make_existing_dir(case):
    name = unique("made")
    assert await settle(case.sbx.files.make_dir(name)) is True
    assert await settle(case.sbx.files.make_dir(name)) is False


@row("files/makeDir: nested directory")
async def test_make_nested_dir(case):
    root = unique("made")
    assert await settle(case.sbx.files.make_dir(f"{root}/b/c")) is True
    for part in (root, f"{root}/b", f"{root}/b/c"):
        assert await settle(case.sbx.files.exists(part)) is True


# --- read, remove, rename

LINES = "\n".join(f"line {n} of many in a stream" for n in range(10_000))


async def collect(stream):
    chunks = []
    if hasattr(stream, "__anext__"):
        async for chunk in stream:
            chunks.append(chunk)
    else:
        chunks.extend(stream)
    return b"".join(chunks)


@row("files/read: file")
async def test_read(case):
    name = unique("read.txt")
    content = "Hello, world! äöü €"
    await settle(case.sbx.files.write(name, content))
    assert await settle(case.sbx.files.read(name)) == content
    assert await settle(case.sbx.files.read(name, format="bytes")) == content.encode()


@row("files/read: non-existing file")
async def test_read_missing(case):
    with pytest.raises(FileNotFoundException) as missing:
        await settle(case.sbx.files.read(unique("absent.txt")))
    assert isinstance(missing.value, NotFoundException)


@row("files/read: as stream")
async def test_read_stream(case):
    name = unique("stream.txt")
    await settle(case.sbx.files.write(name, LINES))
    assert len(LINES) > 230_000
    assert await collect(await settle(case.sbx.files.read(name, format="stream"))) == LINES.encode()


@row("files/read: as stream with gzip")
async def test_read_stream_gzip(case):
    name = unique("stream.txt")
    await settle(case.sbx.files.write(name, LINES))
    stream = await settle(case.sbx.files.read(name, format="stream", gzip=True))
    assert await collect(stream) == LINES.encode()


@row("files/read: stream as context manager")
async def test_read_stream_context(case):
    name = unique("stream.txt")
    await settle(case.sbx.files.write(name, LINES))
    if case.flavor.is_async:
        async with await case.sbx.files.read(name, format="stream") as stream:
            content = await collect(stream)
    else:
        with case.sbx.files.read(name, format="stream") as stream:
            content = await collect(stream)
    assert content == LINES.encode()


@row("files/read: stream closed after the first chunk")
async def test_read_stream_closed(case):
    name = unique("stream.txt")
    await settle(case.sbx.files.write(name, LINES * 20))
    stream = await settle(case.sbx.files.read(name, format="stream"))
    first = await stream.__anext__() if case.flavor.is_async else next(stream)
    assert (LINES * 20).encode().startswith(first)
    await settle(stream.aclose() if case.flavor.is_async else stream.close())
    assert await settle(case.sbx.files.exists(name)) is True


@row("files/read: non-existing file as stream")
async def test_read_missing_stream(case):
    with pytest.raises(FileNotFoundException):
        await settle(case.sbx.files.read(unique("absent.txt"), format="stream"))


@row("files/read: empty file in all formats")
async def test_read_empty(case):
    name = unique("empty.txt")
    await stdout(case, f"touch {name}")
    assert await settle(case.sbx.files.read(name)) == ""
    assert await settle(case.sbx.files.read(name, format="bytes")) == b""
    assert await collect(await settle(case.sbx.files.read(name, format="stream"))) == b""


@row("files/remove: file")
async def test_remove(case):
    name = unique("gone.txt")
    await settle(case.sbx.files.write(name, "soon gone"))
    await settle(case.sbx.files.remove(name))
    assert await settle(case.sbx.files.exists(name)) is False


@row("files/remove: non-existing file")
async def test_remove_missing(case):
    await settle(case.sbx.files.remove(unique("never-there.txt")))


@row("files/rename: file")
async def test_rename(case):
    old, new = unique("from.txt"), unique("to.txt")
    await settle(case.sbx.files.write(old, "moved along"))
    info = await settle(case.sbx.files.rename(old, new))
    assert (info.name, FileType(info.type), info.path) == (new, FileType.FILE, f"{HOME}/{new}")
    assert await settle(case.sbx.files.exists(old)) is False
    assert await settle(case.sbx.files.read(new)) == "moved along"


@row("files/rename: non-existing file")
async def test_rename_missing(case):
    with pytest.raises(FileNotFoundException):
        await settle(case.sbx.files.rename(unique("absent.txt"), unique("to.txt")))


# --- write


@row("files/write: file twice")
async def test_write(case):
    name = unique("write.txt")
    for content in ("This is a test file.", "This is a test file, again."):
        info = await settle(case.sbx.files.write(name, content))
        assert (info.name, FileType(info.type), info.path) == (name, FileType.FILE, f"{HOME}/{name}")
        assert await settle(case.sbx.files.exists(name)) is True
        assert await settle(case.sbx.files.read(name)) == content


@row("files/write: wrong arguments")
async def test_write_wrong_arguments(case):
    name = unique("write.txt")
    with pytest.raises((InvalidArgumentException, TypeError, AttributeError)):
        await settle(case.sbx.files.write(name, 42))
    with pytest.raises(InvalidArgumentException):
        await settle(case.sbx.files.write(name, "x", gzip=True, use_octet_stream=False))
    assert await settle(case.sbx.files.exists(name)) is False


@row("files/write: several files at once")
async def test_write_several(case):
    assert await settle(case.sbx.files.write_files([])) == []
    single = unique("single.txt")
    one = await settle(case.sbx.files.write_files([{"path": single, "data": "one"}]))
    assert [info.path for info in one] == [f"{HOME}/{single}"]

    top = unique("/multi")
    files = [
        {
            "path": f"{top}/{n}/multi_test_file{n}.txt" if n % 2 == 0 else f"{HOME}/{unique('multi')}{n}.txt",
            "data": f"content {n}",
        }
        for n in range(10)
    ]
    infos = await settle(case.sbx.files.write_files(files))
    assert [info.path for info in infos] == [file["path"] for file in files]
    for file in files:
        assert await settle(case.sbx.files.read(file["path"])) == file["data"]


@row("files/write: overwrite file")
async def test_overwrite(case):
    name = unique("write.txt")
    await settle(case.sbx.files.write(name, "a long first version of the file"))
    await settle(case.sbx.files.write(name, "short"))
    assert await settle(case.sbx.files.read(name)) == "short"


@row("files/write: to non-existing directory")
async def test_write_new_directory(case):
    path = f"{unique('new')}/deep/er/file.txt"
    await settle(case.sbx.files.write(path, "parents appear"))
    assert await settle(case.sbx.files.read(path)) == "parents appear"
    assert (await settle(case.sbx.files.get_info(path.split("/")[0]))).owner == "user"


@row("files/write: writeFiles with empty list")
async def test_write_files_empty(case):
    assert await settle(case.sbx.files.write_files([])) == []


@row("files/write: writeFiles with several files")
async def test_write_files(case):
    files = [{"path": unique(f"w{n}.txt"), "data": f"content {n}"} for n in range(10)]
    infos = await settle(case.sbx.files.write_files(files))
    expected = [(file["path"], FileType.FILE, f"{HOME}/{file['path']}") for file in files]
    assert [(info.name, FileType(info.type), info.path) for info in infos] == expected
    for file in files:
        assert await settle(case.sbx.files.read(file["path"])) == file["data"]


@row("files/write: writeFiles with different data types")
async def test_write_files_types(case):
    root = unique("types")
    data = {
        "str.txt": ("from a str", "from a str"),
        "bytes.txt": (b"from bytes", "from bytes"),
        "bytesio.txt": (io.BytesIO(b"from a BytesIO"), "from a BytesIO"),
        "stringio.txt": (io.StringIO("from a StringIO, ü"), "from a StringIO, ü"),
    }
    files = [{"path": f"{root}/{name}", "data": given} for name, (given, _) in data.items()]
    assert len(await settle(case.sbx.files.write_files(files))) == 4
    for name, (_, wanted) in data.items():
        assert await settle(case.sbx.files.read(f"{root}/{name}")) == wanted


@row("files/write: writeFiles creates parent directories")
async def test_write_files_parents(case):
    root = unique("parents")
    files = [{"path": f"{root}/a/1.txt", "data": "1"}, {"path": f"{root}/b/c/2.txt", "data": "2"}]
    await settle(case.sbx.files.write_files(files))
    for file in files:
        assert await settle(case.sbx.files.read(file["path"])) == file["data"]


@row("files/write: writeFiles overwrites existing files")
async def test_write_files_overwrites(case):
    paths = [unique("over1.txt"), unique("over2.txt")]
    await settle(case.sbx.files.write_files([{"path": path, "data": "first, longer"} for path in paths]))
    await settle(case.sbx.files.write_files([{"path": path, "data": f"2 {path[:5]}"} for path in paths]))
    for path in paths:
        assert await settle(case.sbx.files.read(path)) == f"2 {path[:5]}"


LONG = "\n".join(f"piece {n} of it" for n in range(20_000))


async def check_long(case, name):
    assert (await settle(case.sbx.files.get_info(name))).size == len(LONG)
    assert await settle(case.sbx.files.read(name)) == LONG


@row("files/write: stream with octet-stream upload")
async def test_write_stream(case):
    name = unique("long.txt")
    info = await settle(case.sbx.files.write(name, io.BytesIO(LONG.encode()), use_octet_stream=True))
    assert (info.name, info.path) == (name, f"{HOME}/{name}")
    await check_long(case, name)


@row("files/write: stream with octet-stream upload and gzip")
async def test_write_stream_gzip(case):
    name = unique("long.txt")
    await settle(case.sbx.files.write(name, io.BytesIO(LONG.encode()), use_octet_stream=True, gzip=True))
    await check_long(case, name)


@row("files/write: text stream with octet-stream upload")
async def test_write_text_stream(case):
    for gzip in (False, True):
        name = unique("long.txt")
        await settle(case.sbx.files.write(name, io.StringIO(LONG), use_octet_stream=True, gzip=gzip))
        await check_long(case, name)


@row("files/write: secured sandbox", secure=True)
async def test_write_secured(case):
    assert await settle(case.sbx.is_running()) is True
    info = await settle(case.sbx.files.write("secured.txt", "content"))
    assert info.path == f"{HOME}/secured.txt"
    assert await settle(case.sbx.files.read("secured.txt")) == "content"


@row("files/write: binary file")
async def test_write_binary(case):
    name = unique("binary.bin")
    content = bytes(range(256)) * 4
    info = await settle(case.sbx.files.write(name, io.BytesIO(content)))
    assert info.path == f"{HOME}/{name}"
    assert await settle(case.sbx.files.read(name, format="bytes")) == content


@row("files/write: full disk")
async def test_write_full_disk(case):
    fill = "fallocate -l $(($(df --output=avail -B1 /home/user | tail -1) - 4194304)) /home/user/filler"
    await settle(case.sbx.commands.run(fill, user="root"))
    data = b"\7" * (24 << 20)
    for options in ({}, {"use_octet_stream": True}):
        with pytest.raises(NotEnoughSpaceException):
            await settle(case.sbx.files.write("more.bin", data, **options))
    with pytest.raises(NotEnoughSpaceException):
        await settle(case.sbx.files.write("more.bin", io.BytesIO(data)))
    await settle(case.sbx.files.remove("filler"))
    assert (await settle(case.sbx.files.write("more.bin", data))).path == f"{HOME}/more.bin"
