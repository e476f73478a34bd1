// The machine as the kernel shows it: processes, descriptors, mounts, cgroups, network namespaces, directories.
import fs from 'node:fs'
import path from 'node:path'

export const serverPid = Number(process.env.ATOLL_E2E_SERVER_PID)
export const home = process.env.ATOLL_E2E_HOME

const read = (file) => {
  try {
    return fs.readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

const list = (directory) => {
  try {
    return fs.readdirSync(directory)
  } catch {
    return []
  }
}

const link = (file) => {
  try {
    return fs.readlinkSync(file)
  } catch {
    return ''
  }
}

export const status = (pid) =>
  Object.fromEntries(read(`/proc/${pid}/status`).split('\n').filter(Boolean).map((line) => {
    const at = line.indexOf(':')
    return [line.slice(0, at), line.slice(at + 1).trim()]
  }))

export const pids = () => list('/proc').filter((name) => /^\d+$/.test(name)).map(Number)

export const commandLine = (pid) => read(`/proc/${pid}/cmdline`).split('\0').filter(Boolean)

// Processes below `root` in the tree, it included.
export function descendants(root) {
  const parents = new Map(pids().map((pid) => [pid, Number(status(pid).PPid ?? 0)]))
  const found = new Set([root])
  for (let grown = true; grown;) {
    grown = false
    for (const [pid, parent] of parents) {
      if (found.has(parent) && !found.has(pid)) {
        found.add(pid)
        grown = true
      }
    }
  }
  return [...found]
}

export function wardenPid(server = serverPid, serverHome = home) {
  const name = (pid) => status(pid).Name
  return descendants(server).find((pid) => name(pid) === 'atoll-warden') ??
    pids().find((pid) => name(pid) === 'atoll-warden' && commandLine(pid).some((word) => word.includes(serverHome)))
}

export const descriptors = (pid) =>
  list(`/proc/${pid}/fd`).map((fd) => link(`/proc/${pid}/fd/${fd}`)).filter(Boolean)

// Sockets of the internet families that `pid` holds, as lines of /proc/net.
export function networkSockets(pid) {
  const held = new Set(descriptors(pid).map((target) => /^socket:\[(\d+)\]$/.exec(target)?.[1]).filter(Boolean))
  const found = []
  for (const table of ['tcp', 'tcp6', 'udp', 'udp6', 'raw', 'raw6', 'icmp', 'icmp6']) {
    for (const line of read(`/proc/${pid}/net/${table}`).split('\n').slice(1)) {
      const fields = line.trim().split(/\s+/)
      if (held.has(fields[9])) found.push({ table, local: fields[1], state: fields[3] })
    }
  }
  return found
}

function cgroups() {
  const found = []
  const walk = (directory) => {
    for (const entry of fs.readdirSync(directory, { withFileTypes: true })) {
      if (!entry.isDirectory()) continue
      const whole = path.join(directory, entry.name)
      found.push(whole)
      try {
        walk(whole)
      } catch {
        // It ended while we looked.
      }
    }
  }
  walk('/sys/fs/cgroup')
  return found.length
}

// What must be the same before and after sandboxes came and went.
export function inventory() {
  const warden = wardenPid()
  const networks = new Set(pids().map((pid) => link(`/proc/${pid}/ns/net`)).filter(Boolean))
  return {
    processes: descendants(serverPid).length,
    agents: pids().filter((pid) => status(pid).Name === 'atoll-agent').length,
    mounts: new Set([serverPid, warden].flatMap((pid) => read(`/proc/${pid}/mountinfo`).split('\n'))).size,
    networks: networks.size,
    interfaces: read('/proc/net/dev').split('\n').length,
    cgroups: cgroups(),
    sandboxes: list(path.join(home, 'sandboxes')).flatMap((name) => list(path.join(home, 'sandboxes', name))).length,
    ranges: list('/run/atoll/ranges').length,
    loops: list('/sys/block').filter((name) => name.startsWith('loop') && read(`/sys/block/${name}/loop/backing_file`)).length,
    serverDescriptors: descriptors(serverPid).length,
    wardenDescriptors: descriptors(warden).length,
  }
}
