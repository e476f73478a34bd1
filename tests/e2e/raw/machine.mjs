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

// Other servers may use the machine at the same time: only what belongs to this one counts.

// Directories of the server's cgroups; their names are learnt from a process of one of its sandboxes.
const cgroupParents = new Set()

export function learnCgroups() {
  const own = link('/proc/self/ns/pid')
  for (const pid of descendants(serverPid)) {
    if ([own, ''].includes(link(`/proc/${pid}/ns/pid`))) continue
    for (const line of read(`/proc/${pid}/cgroup`).split('\n').filter(Boolean)) {
      const [, controllers, place] = line.split(':')
      const at = place.lastIndexOf('/atoll/')
      if (at < 0) continue
      const parent = place.slice(0, at + 7) + place.slice(at + 7).split('/')[0]
      for (const root of ['/sys/fs/cgroup', '/sys/fs/cgroup/unified', `/sys/fs/cgroup/${controllers.replace('name=', '')}`]) {
        if (fs.existsSync(root + parent)) cgroupParents.add(root + parent)
      }
    }
  }
  return cgroupParents.size
}

const directories = (parent) => {
  try {
    return fs.readdirSync(parent, { withFileTypes: true }).filter((entry) => entry.isDirectory()).length
  } catch {
    return 0
  }
}

// What must be the same before and after sandboxes came and went.
export function inventory() {
  const warden = wardenPid()
  const own = link('/proc/self/ns/pid')
  const mine = descendants(serverPid)
  return {
    processes: mine.length,
    inside: mine.filter((pid) => ![own, ''].includes(link(`/proc/${pid}/ns/pid`))).length,
    networks: new Set(mine.map((pid) => link(`/proc/${pid}/ns/net`)).filter(Boolean)).size,
    mounts: new Set([serverPid, warden].flatMap((pid) => read(`/proc/${pid}/mountinfo`).split('\n'))).size,
    cgroups: [...cgroupParents].reduce((sum, parent) => sum + directories(parent), 0),
    sandboxes: list(path.join(home, 'sandboxes')).flatMap((name) => list(path.join(home, 'sandboxes', name))).length,
    ranges: list('/run/atoll/ranges').filter((name) => read(`/run/atoll/ranges/${name}`).split('\n')[0] === home).length,
    loops: list('/sys/block').filter((name) => read(`/sys/block/${name}/loop/backing_file`).startsWith(home)).length,
    serverDescriptors: descriptors(serverPid).length,
    wardenDescriptors: descriptors(warden).length,
  }
}
