"""One sandbox with the witness in it, as its client knows it. Every look compares it with the look before."""

import time
import urllib.parse
from pathlib import Path

from client import Inside, Unknown
from load import Violation, patiently
from witness import PORT

LIFE = 3600
WITNESS = Path(__file__).resolve().parent / "witness.py"


class Watched:
    def __init__(self, api, still_mib=16, **body):
        self.api, self.last = api, None
        answer = api.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": LIFE, **body})
        if answer.status != 201:
            raise Violation(f"create: {answer}")
        self.take(answer.json)
        inside = Inside(api, self.id, self.token)
        answer = inside.write("/home/user/witness.py", WITNESS.read_bytes())
        if answer.status != 200:
            raise Violation(f"write: {answer}")
        answer, _, _ = inside.run(f"exec python3 /home/user/witness.py {still_mib}", until_start=True)
        if answer.status != 200:
            raise Violation(f"start: {answer}")
        self.last = patiently(self.ask)

    @classmethod
    def copy(cls, source, created, last):
        """A sandbox with the memory of another: what is in it has to be as old as `last` or newer."""
        it = cls.__new__(cls)
        it.api, it.last = source.api, dict(last)
        it.take(created)
        return it

    def take(self, created):
        self.id, self.token, self.traffic = created["sandboxID"], created.get("envdAccessToken"), created.get("trafficAccessToken")
        self.target = f"/sandboxes/{self.id}"

    def __repr__(self):
        return self.id

    def ask(self):
        headers = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(PORT)}
        if self.traffic:
            headers["e2b-traffic-access-token"] = self.traffic
        answer = self.api.request("GET", "/", headers)
        if answer.status != 200:
            raise Unknown(f"the witness: {answer}")
        return answer.json

    def check(self, same_boot=True):
        """Everything in it is as it has to be, and not older than at the last look."""
        now = patiently(self.ask)
        if now["wrong"]:
            raise Violation(f"{self}: wrong after {now['n']} steps (last seen at {self.last['n']}): {now['wrong']}")
        if now["n"] < self.last["n"]:
            raise Violation(f"{self}: it went back from step {self.last['n']} to {now['n']}")
        for field in ("still", "pid", *(("boot",) if same_boot else ())):
            if now[field] != self.last[field]:
                raise Violation(f"{self}: {field} was {self.last[field]} and is {now[field]}")
        self.last = now
        return now

    def must_move(self, limit=20):
        """It runs: the number grows."""
        before = self.check()["n"]
        end = time.monotonic() + limit
        while self.check()["n"] <= before:
            if time.monotonic() > end:
                raise Violation(f"{self}: it stands still at step {before}")
            time.sleep(0.02)

    # ---- changes that must succeed ----

    def expect(self, answer, *statuses):
        if answer.status not in statuses:
            raise Violation(f"{self}: {answer}")
        return answer

    def info(self):
        return self.expect(self.api.call("GET", self.target), 200).json

    def state(self):
        return patiently(lambda: self.info()["state"])

    def pause(self):
        return self.expect(self.api.call("POST", self.target + "/pause", {"memory": True}, timeout=120), 204)

    def resume(self, timeout=LIFE):
        return self.expect(self.api.call("POST", self.target + "/connect", {"timeout": timeout}, timeout=120), 200, 201)

    def kill(self):
        patiently(lambda: self.expect(self.api.call("DELETE", self.target), 204, 404))


def snapshots(api):
    """{snapshotID: row} of all there are."""
    rows, token = {}, ""
    for _ in range(100):
        answer = api.call("GET", "/snapshots?limit=100" + (f"&nextToken={urllib.parse.quote(token)}" if token else ""))
        if answer.status == 501:
            return {}  # this host cannot write memory to files
        if answer.status != 200:
            raise Unknown(f"list of snapshots: {answer}")
        rows.update({row["snapshotID"]: row for row in answer.json})
        token = answer.headers.get("X-Next-Token", "")
        if not token:
            return rows
    raise Unknown("list of snapshots: no end")


def delete_snapshot(api, snapshot):
    answer = api.call("DELETE", "/templates/" + urllib.parse.quote(snapshot, safe=""))
    if answer.status >= 500:
        raise Unknown(f"delete {snapshot}: {answer}")
    if answer.status not in (204, 404):
        raise Violation(f"delete {snapshot}: {answer}")


def end_everything(api):
    """Sandboxes, then snapshots; what an earlier run left included."""
    for box in patiently(api.list):
        patiently(lambda box=box: api.call("DELETE", f"/sandboxes/{box}"))
    for snapshot in patiently(lambda: snapshots(api)):
        patiently(lambda snapshot=snapshot: delete_snapshot(api, snapshot))
