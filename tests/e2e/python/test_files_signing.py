"""Signed URLs with a bare HTTP client: no token is sent."""

import json

from support import fetch, route, row, settle

EXPIRED = {"code": 401, "message": "signature is already expired"}


def request(case, url, body=None, content_type=None):
    headers = {**route(case.sbx), **({"Content-Type": content_type} if content_type else {})}
    status, _, content = fetch(url, headers, body)
    return status, content


def upload(case, url, content):
    boundary = "a-boundary-of-the-test"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"\r\n\r\n'.encode()
        + content
        + f"\r\n--{boundary}--\r\n".encode()
    )
    return request(case, url, body, f"multipart/form-data; boundary={boundary}")


@row("files/signing: download with expired signature")
async def test_download_expired(case):
    await settle(case.sbx.files.write("hello.txt", "hello world"))
    url = case.sbx.download_url("hello.txt", user="user", use_signature_expiration=-120)
    status, body = request(case, url)
    assert (status, json.loads(body)) == (401, EXPIRED)


@row("files/signing: download with valid signature")
async def test_download(case):
    await settle(case.sbx.files.write("hello.txt", "hello world"))
    assert request(case, case.sbx.download_url("hello.txt", user="user")) == (200, b"hello world")


@row("files/signing: download with valid signature and expiry")
async def test_download_expiry(case):
    await settle(case.sbx.files.write("hello.txt", "hello world"))
    url = case.sbx.download_url("hello.txt", user="user", use_signature_expiration=120)
    assert request(case, url) == (200, b"hello world")
    assert request(case, url.replace("hello.txt", "other.txt"))[0] == 401


@row("files/signing: upload with valid signature")
async def test_upload(case):
    url = case.sbx.upload_url("hello.txt", user="user", use_signature_expiration=120)
    status, body = upload(case, url, b"uploaded")
    assert status == 200
    assert json.loads(body) == [{"name": "hello.txt", "path": "/home/user/hello.txt", "type": "file"}]
    assert await settle(case.sbx.files.read("hello.txt")) == "uploaded"


@row("files/signing: upload with expired signature")
async def test_upload_expired(case):
    url = case.sbx.upload_url("hello.txt", user="user", use_signature_expiration=-120)
    status, body = upload(case, url, b"never stored")
    assert (status, json.loads(body)) == (401, EXPIRED)
    assert await settle(case.sbx.files.exists("hello.txt")) is False


@row("files/signing: command in a secured sandbox", secure=True)
async def test_command(case):
    result = await settle(case.sbx.commands.run("echo Hello World!"))
    assert (result.exit_code, result.stdout) == (0, "Hello World!\n")
