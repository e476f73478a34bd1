import pytest
from e2b import InvalidArgumentException

from support import row, settle, unique

METADATA = {"author": "e2e", "purpose": "check"}


@row("files/metadata: write file with metadata")
async def test_write(case):
    name = unique("meta.txt")
    written = await settle(case.sbx.files.write(name, "x", metadata=METADATA))
    assert written.metadata == METADATA
    assert (await settle(case.sbx.files.get_info(name))).metadata == METADATA


@row("files/metadata: write with metadata using octet-stream")
async def test_octet_stream(case):
    name = unique("meta.txt")
    written = await settle(case.sbx.files.write(name, "x", metadata=METADATA, use_octet_stream=True))
    assert written.metadata == METADATA
    assert (await settle(case.sbx.files.get_info(name))).metadata == METADATA


@row("files/metadata: write file without metadata")
async def test_without(case):
    name = unique("meta.txt")
    assert (await settle(case.sbx.files.write(name, "x"))).metadata is None
    assert (await settle(case.sbx.files.get_info(name))).metadata is None


@row("files/metadata: several files share the metadata")
async def test_several(case):
    files = [{"path": unique(f"meta{n}.txt"), "data": str(n)} for n in range(2)]
    infos = await settle(case.sbx.files.write_files(files, metadata=METADATA))
    assert [info.metadata for info in infos] == [METADATA] * 2
    for file in files:
        assert (await settle(case.sbx.files.get_info(file["path"]))).metadata == METADATA


@row("files/metadata: listing shows metadata")
async def test_list(case):
    root = unique("meta")
    await settle(case.sbx.files.write(f"{root}/a.txt", "x", metadata=METADATA))
    (entry,) = await settle(case.sbx.files.list(root))
    assert entry.metadata == METADATA


@row("files/metadata: rename keeps metadata")
async def test_rename(case):
    root = unique("meta")
    await settle(case.sbx.files.write(f"{root}/a.txt", "x", metadata=METADATA))
    moved = await settle(case.sbx.files.rename(f"{root}/a.txt", f"{root}/b.txt"))
    assert moved.metadata == METADATA


@row("files/metadata: overwriting clears stale metadata")
async def test_overwrite(case):
    name = unique("meta.txt")
    await settle(case.sbx.files.write(name, "old", metadata=METADATA))
    assert (await settle(case.sbx.files.write(name, "new"))).metadata is None
    assert (await settle(case.sbx.files.get_info(name))).metadata is None


@row("files/metadata: xattr set inside is shown")
async def test_xattr(case):
    name = unique("meta.txt")
    await settle(case.sbx.files.write(name, "x"))
    path = (await settle(case.sbx.commands.run(f"realpath {name}"))).stdout.strip()
    code = f"import os; os.setxattr('{path}', 'user.e2b.author', b'inside')"
    await settle(case.sbx.commands.run(f'python3 -c "{code}"'))
    assert (await settle(case.sbx.files.get_info(name))).metadata == {"author": "inside"}


@row("files/metadata: invalid metadata is rejected")
async def test_invalid(case):
    name = unique("meta.txt")
    for bad in ({"a key": "v"}, {"": "v"}, {"key": "line\nbreak"}, {"key": "ü"}):
        with pytest.raises(InvalidArgumentException):
            await settle(case.sbx.files.write(name, "x", metadata=bad))
    assert await settle(case.sbx.files.exists(name)) is False
