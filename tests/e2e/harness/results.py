"""Results of all suites: which rows of rows.tsv hold for which client, counts per area, and the files that the
compatibility matrix is made from."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

ROWS = Path(__file__).resolve().parents[1] / "rows.tsv"
AREAS = ("commands", "files", "pty", "git", "sandbox", "wire", "bad-input", "kill", "host")
CLIENTS = ("js", "sync", "async", "raw")


@dataclass(frozen=True)
class Row:
    id: str
    clients: tuple
    debug: bool

    @property
    def area(self):
        return area_of(self.id)


@dataclass
class Result:
    id: str
    client: str
    mode: str  # "server" or "debug"
    outcome: str  # "passed", "failed", "skipped"
    ms: int
    reason: str = ""
    error: str = ""


def area_of(row_id):
    return row_id.split("/", 1)[0]


def read_rows():
    rows = []
    for line in ROWS.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        row_id, clients, debug = line.split("\t")
        rows.append(Row(row_id, tuple(clients.split(",")), debug == "D"))
    return rows


def read_suite(path, client, mode):
    """Results of one suite's file; `client` is the default for lines that name none."""
    results = []
    path = Path(path)
    if not path.exists():
        return results
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        results.append(Result(entry["id"], entry.get("client") or client, mode, entry["outcome"],
                              entry.get("ms", 0), entry.get("reason") or "", entry.get("error") or ""))
    return results


def uncovered(results, clients_by_mode, areas):
    """Rows without a result for one of their clients, as (mode, client, row id)."""
    seen = {(result.mode, result.client, result.id) for result in results}
    missing = []
    for row in read_rows():
        if row.area not in areas:
            continue
        for mode, clients in clients_by_mode.items():
            if mode == "debug" and not row.debug:
                continue
            missing += [(mode, client, row.id) for client in row.clients
                        if client in clients and (mode, client, row.id) not in seen]
    return missing


NAMES = {"js": "JavaScript", "sync": "Python sync", "async": "Python async", "raw": "raw HTTP"}


def table(results):
    """Counts per area, client and mode as lines of text: passed/run."""
    columns = sorted({(r.mode, r.client) for r in results},
                     key=lambda column: (column[0] == "debug", CLIENTS.index(column[1])))
    ran, passed = Counter(), Counter()
    for r in results:
        if r.outcome == "skipped":
            continue
        ran[area_of(r.id), r.mode, r.client] += 1
        passed[area_of(r.id), r.mode, r.client] += r.outcome == "passed"
    heads = [NAMES[client] + (" (debug)" if mode == "debug" else "") for mode, client in columns]
    widths = [max(len(head), 7) for head in heads]
    lines = ["  ".join([f"{'area':<10}", *(f"{head:>{width}}" for head, width in zip(heads, widths))])]
    areas = [area for area in AREAS if any(key[0] == area for key in ran)]
    for area in areas + ["total"]:
        cells = []
        for (mode, client), width in zip(columns, widths):
            keys = [(a, mode, client) for a in (areas if area == "total" else [area])]
            total = sum(ran[key] for key in keys)
            cells.append(f"{f'{sum(passed[key] for key in keys)}/{total}' if total else '-':>{width}}")
        lines.append("  ".join([f"{area:<10}", *cells]))
    return "\n".join(lines)


def write_json(path, results, versions, skipped_clients):
    """build/e2e-results.json: feature x client x version."""
    features = defaultdict(dict)
    for r in results:
        key = r.client if r.mode == "server" else f"{r.client}-debug"
        # A row may have several cases; the worst counts.
        worst = {"failed": 0, "skipped": 1, "passed": 2}
        before = features[r.id].get(key)
        if before is None or worst[r.outcome] < worst[before]:
            features[r.id][key] = r.outcome
    document = {
        "format": 1,
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
