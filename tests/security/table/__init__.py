"""The table of attacks, area by area. A new area is a module with AREA and ROWS, named here."""

from table import (agents, api, descriptors, devices, files, http2, identity, kernel, kernels, limits, memory, mounts, neighbours, network, processes,
                   syscalls, templates)

AREAS = [files, descriptors, processes, devices, kernel, mounts, syscalls, neighbours, network, identity, templates, limits, api, http2, agents, kernels, memory]


def rows():
    names = set()
    for module in AREAS:
        for row in module.ROWS:
            if row.name in names:
                raise SystemExit(f"security: two rows are called {row.name}")
            names.add(row.name)
            row.area = module.AREA
            yield row
