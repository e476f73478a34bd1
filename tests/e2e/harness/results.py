"""Results of all suites: which rows of rows.tsv hold for which client, counts per area, and the file that the
compatibility matrix is made from."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

ROWS = Path(__file__).resolve().parents[1] / "rows.tsv"
SDK_AREAS = ("commands", "files", "pty", "git", "sandbox", "lifecycle", "snapshots", "network", "code", "languages", "charts", "flows")
# Without an SDK, and with the official command line.
RAW_AREAS = ("wire", "api", "proxy", "egress", "http2", "bad-input", "cli", "interpreter", "mcp", "bombs", "cycles", "kill", "host", "limits", "restart", "memory", "memory-matrix", "sessions", "workspaces", "executor", "providers", "guides")
AREAS = SDK_AREAS + RAW_AREAS
MODES = {"T": "tls", "P": "plain", "D": "debug"}
# An old release is a client of its own.
OLD = "-old"
NAMES = {"js": "JavaScript", "sync": "Python", "async": "Python async", "js-old": "JavaScript (old)",
         "sync-old": "Python (old)", "async-old": "Python async (old)", "raw": "raw", "cli": "e2b CLI"}
CLIENTS = tuple(NAMES)


@dataclass(frozen=True)
class Row:
    id: str
    clients: tuple
    where: str

    @property
    def area(self):
        return area_of(self.id)

    def promises(self):
        """Every (mode, client) that must show it."""
        for letter, mode in MODES.items():
            if letter not in self.where:
                continue
            for client in self.clients:
                yield mode, client
                # Old releases over plain URLs: only what their releases handle otherwise (connect, pause).
                if ("O" in self.where or "J" in self.where and client == "js" or "Y" in self.where and client != "js") and client in ("js", "sync", "async") and (
                        mode == "tls" or (mode == "plain" and self.area in ("sandbox", "lifecycle"))):
                    yield mode, client + OLD


@dataclass
class Result:
    id: str
    client: str
    mode: str  # "tls", "plain", "debug"
    outcome: str  # "passed", "failed", "skipped"
    ms: int
    reason: str = ""
    error: str = ""
    twice: bool = False  # failed, and passed when it was run again; `error` is of the first time


def area_of(row_id):
    return row_id.split("/", 1)[0]


def read_rows():
    rows = []
    for line in ROWS.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        row_id, clients, where = line.split("\t")
        rows.append(Row(row_id, tuple(clients.split(",")), where))
    return rows


def read_suite(path, client, mode, old=False):
    """Results of one suite's file; `client` is the default for lines that name none."""
    results = []
    path = Path(path)
    if not path.exists():
        return results
    # What cases found out about the machine.
    told = Path(f"{path}.notes")
    notes = {entry["id"]: entry["note"] for entry in map(json.loads, told.read_text().splitlines())} if told.exists() else {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        name = entry.get("client") or client
        results.append(Result(entry["id"], name + OLD if old and name else name, mode, entry["outcome"],
                              entry.get("ms", 0), entry.get("reason") or notes.get(entry["id"], ""), entry.get("error") or ""))
    return results


def with_second_try(first, second):
    """The first results, in which a failed case has passed if all that the second run has of it passed."""
    again = defaultdict(list)
    for result in second:
        again[result.id, result.client].append(result.outcome)
    return [replace(result, outcome="passed", twice=True)
            if result.outcome == "failed" and set(again[result.id, result.client]) == {"passed"} else result for result in first]


def uncovered(results, ran, areas):
    """Promises without a result, as (mode, client, row id); `ran` is the set of (mode, client) that took part."""
    seen = {(result.mode, result.client, result.id) for result in results}
    return [(mode, client, row.id) for row in read_rows() if row.area in areas
            for mode, client in row.promises() if (mode, client) in ran and (mode, client, row.id) not in seen]


def label(mode, client):
    return NAMES.get(client, client or "?") + {"plain": ", plain", "debug": ", bare agent"}.get(mode, "")


def table(results):
    """One line per area: passed/run for every client, and how long its cases took in all."""
    columns = sorted({(r.mode, r.client) for r in results},
                     key=lambda column: (list(MODES.values()).index(column[0]), CLIENTS.index(column[1])))
    ran, passed, took = Counter(), Counter(), Counter()
    for r in results:
        if r.outcome == "skipped":
            continue
        ran[area_of(r.id), r.mode, r.client] += 1
        passed[area_of(r.id), r.mode, r.client] += r.outcome == "passed"
        took[area_of(r.id)] += r.ms
    lines = []
    for area in (area for area in AREAS if any(key[0] == area for key in ran)):
        cells = [f"{label(mode, client)} {passed[area, mode, client]}/{ran[area, mode, client]}"
                 for mode, client in columns if ran[area, mode, client]]
        lines.append(f"{area:<13} {sum(passed[area, m, c] for m, c in columns):>5} of {sum(ran[area, m, c] for m, c in columns):<5}"
                     f"{took[area] / 1000:>7.1f} s  " + ", ".join(cells))
    return "\n".join(lines)


def write_json(path, results, versions, skipped_clients):
    """build/e2e-results.json: feature x client and version x mode."""
    features = defaultdict(dict)
    worst = {"failed": 0, "skipped": 1, "passed": 2}
    for r in results:
        key = f"{r.client} {r.mode}"
        # A row may have several cases; the worst counts.
        before = features[r.id].get(key)
        if before is None or worst[r.outcome] < worst[before["outcome"]]:
            features[r.id][key] = {"outcome": r.outcome, **({"reason": r.reason} if r.reason else {})}
    document = {
        "format": 2,
        "versions": versions,
        "skipped": skipped_clients,
        "features": [{"id": row_id, "area": area_of(row_id), "results": found}
                     for row_id, found in sorted(features.items())],
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(document, indent=1) + "\n")
    temporary.rename(path)
