"""Templates made by an attacker: mount targets that are links, or not what they should be."""

import json
import os
import shutil
import subprocess

from client import ApiError
from model import Fail, held, Row
from world import read_text, Server

AREA = "Hostile templates"
MANIFEST = {"version": 1, "templateID": "", "buildID": "00000000-0000-4000-8000-000000000000", "names": [], "recipe": "",
            "cpuCount": 1, "memoryMB": 128, "diskMB": 128, "sizeMB": 1, "envdVersion": "0.6.13", "defaultUser": "root",
            "createdAt": "2026-01-01T00:00:00Z"}


def make_template(store, name, change, payload):
    """A root with nothing but what a sandbox must have, then changed."""
    root = os.path.join(store, name, "rootfs")
    for directory in ("bin", "dev", "etc", "home", "proc", "root", "run/atoll", "tmp", "usr"):
        os.makedirs(os.path.join(root, directory))
    with open(os.path.join(root, "etc/passwd"), "w") as file:
        file.write("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home:/bin/sh\n")
    with open(os.path.join(root, "etc/group"), "w") as file:
        file.write("root:x:0:\nuser:x:1000:\n")
    shutil.copy(payload, os.path.join(root, "bin/read_host_file"))
    change(root)
    manifest = {**MANIFEST, "templateID": name.ljust(20, "0")[:20], "names": [name]}
    with open(os.path.join(store, name, "manifest.json"), "w") as file:
        json.dump(manifest, file)


def link(path, target):
    def change(root):
        where = os.path.join(root, path)
        if os.path.isdir(where):
            shutil.rmtree(where)
        elif os.path.lexists(where):
            os.unlink(where)
        os.symlink(target, where)
    return change


def plain_file(path):
    def change(root):
        shutil.rmtree(os.path.join(root, path))
        open(os.path.join(root, path), "w").close()
    return change


def trapped(trap):
    """Whether anything happened to the directory on the host to which the links lead."""
    if os.listdir(trap):
        return f"the host's directory has {os.listdir(trap)}"
    for line in read_text("/proc/self/mountinfo").splitlines():
        if line.split()[4].startswith(trap):
            return "something was mounted on the host's directory"
    return None


def control(world):
    """A mount that follows links arrives at the host's directory."""
    store = os.path.join(world.work, "naive")
    trap = os.path.join(store, "trap")
    os.makedirs(trap)
    os.symlink(trap, os.path.join(store, "dev"))
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                           'mount -t tmpfs none "$0/dev" && mountpoint -q "$0/trap"', store], capture_output=True)
    shutil.rmtree(store)
    if done.returncode != 0:
        raise Fail(f"the control did not follow the link: {done.stderr.decode()[-200:]}")
    return "succeeded"


def run(world):
    store, trap = os.path.join(world.work, "templates"), os.path.join(world.work, "trap")
    os.makedirs(store)
    os.makedirs(trap)
    payload = world.payload("read_host_file")
    changes = {"plain": lambda root: None, "devfile": plain_file("dev"), "procfile": plain_file("proc")}
    for path in ("dev", "proc", "run", "run/atoll", "etc", "etc/hostname", "etc/hosts", "tmp"):
        changes["link" + path.replace("/", "")] = link(path, trap)
        changes["up" + path.replace("/", "")] = link(path, "../" * 12 + trap[1:])
    for name, change in changes.items():
        make_template(store, name, change, payload)
    server = Server(world.build, os.path.join(world.work, "hostile-home"), os.path.join(world.work, "hostile.log"), store)
    said = []
    try:
        for name in changes:
            try:
                sandbox = server.api.create(name)
            except ApiError as error:
                if name == "plain":
                    raise Fail(f"the harmless template does not start, so this shows nothing: {error}")
                if error.status < 500:
                    raise Fail(f"template {name}: {error}")
                said.append(f"{name} refused")
            else:
                try:
                    code, out, err = sandbox.run(["/bin/read_host_file", world.canary, world.secret], user="root", cwd="/")
                    if code != 0:
                        raise Fail(f"template {name}: {(out + err)[-200:]!r}")
                    said.append(f"{name} confined")
                finally:
                    sandbox.kill()
            if reason := trapped(trap):
                raise Fail(f"template {name}: {reason}")
        server.api.create("plain").kill()
    finally:
        server.stop()
    return held(control(world), ", ".join(said))


ROWS = [
    Row("hostile_template", "a template whose /dev, /proc, /run or /etc are links to the host (CVE-2025-31133 class)",
        "targets opened beneath the root by descriptor, links refused", run, lambda world: held(control(world))),
]
