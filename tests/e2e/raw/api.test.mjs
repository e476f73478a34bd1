// The control plane, status by status: what every endpoint answers to good, wrong, missing, conflicting and foreign requests.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import { adminToken, api, apiKey, assert, domain, limited, Raw, request, sleep, unique, until, withSandbox } from './support.mjs'

const parallel = { concurrency: 4 }
const nobody = 'nonexistingsandbox'

// An answer with the expected status and, for errors, a body whose code is the status.
function is(answer, status, message) {
  assert.equal(answer.status, status, answer.text)
  if (status >= 400) {
    assert.match(answer.headers['content-type'], /^application\/json/)
    assert.equal(answer.json.code, status)
    if (message) assert.match(answer.json.message, message)
  }
  return answer
}

const seconds = (from, to) => (new Date(to) - new Date(from)) / 1000
const untilPaused = (sandbox) => until('the pause', async () => (await sandbox.api('GET')).json.state === 'paused')
const bootId = async (sandbox) => (await sandbox.download('/proc/sys/kernel/random/boot_id')).text

describe('api/create', parallel, () => {
  test('api/create: defaults of both generations', limited(30), async () => {
    const one = new Raw(is(await api('POST', '/sandboxes', { templateID: 'base' }), 201).json)
    const two = new Raw(is(await api('POST', '/v2/sandboxes', { templateID: 'base' }), 201).json)
    try {
      assert.ok(!one.token, 'v1 is open unless asked otherwise')
      assert.ok(two.token, 'v2 is always secured')
      for (const [sandbox, timeout] of [[one, 15], [two, 300]]) {
        const info = (await sandbox.api('GET')).json
        assert.equal(seconds(info.startedAt, info.endAt), timeout, sandbox.id)
        assert.match(sandbox.id, /^i[a-z0-9]{20}$/)
        assert.equal(sandbox.fields.domain, domain)
        assert.equal(sandbox.fields.alias, 'base')
        assert.ok(sandbox.fields.clientID && sandbox.fields.envdVersion && sandbox.fields.templateID)
        assert.ok(!sandbox.fields.trafficAccessToken)
      }
      assert.equal((await one.run('echo open')).stdout, 'open\n')
      assert.equal((await request('GET', '/envs', { base: two.base, headers: { 'E2b-Sandbox-Id': two.id, 'E2b-Sandbox-Port': '49983' } })).status, 401)
    } finally {
      await Promise.all([one.kill(), two.kill()])
    }
  })

  test('api/create: refused combinations', limited(30), async () => {
    const refused = [
      [{ timeout: 0 }, /Timeout must be greater than 0/],
      [{ timeout: 10 ** 8 }, /Timeout cannot be greater than/],
      [{ autoPauseMemory: false }, /./],
      [{ autoPause: true, autoPauseMemory: false, autoResume: { enabled: true } }, /./],
      [{ network: { denyOut: ['example.com'] } }, /invalid denied CIDR example\.com/],
      [{ network: { allowOut: ['example.com'] } }, /you must include 'ALL_TRAFFIC' in deny out/],
      [{ network: { rules: { 'not a name': [{ transform: { headers: {} } }] } } }, /is not a valid domain name/],
      [{ network: { rules: { 'a.example': [{ transform: { headers: { 'bad name': 'x' } } }] } } }, /./],
      [{ network: { rules: Object.fromEntries(Array.from({ length: 11 }, (_, i) => [`a${i}.example`, [{ transform: { headers: { a: 'b' } } }]])) } },
       /at most 10 domains/],
      [{ network: { maskRequestHost: 'bad host' } }, /./],
      [{ network: { egressProxy: { address: '10.0.0.1:1080' } } }, /./],
      [{ network: { egressProxy: { address: '203.0.113.80:1080', password: 'alone' } } }, /./],
      [{ metadata: { number: 1 } }, /./],
      [{ envVars: ['not', 'a', 'map'] }, /./],
    ]
    for (const [fields, message] of refused) {
      const answer = await api('POST', '/v2/sandboxes', { templateID: 'base', ...fields })
      if (answer.status === 201) await api('DELETE', `/sandboxes/${answer.json.sandboxID}`)
      assert.equal(answer.status, 400, `${JSON.stringify(fields)}: ${answer.text}`)
      is(answer, 400, message)
    }
    is(await api('POST', '/sandboxes', { templateID: 'base', network: { allowPublicTraffic: false } }), 400, /unless you enable secure envd access/)
    is(await api('POST', '/v2/sandboxes', { templateID: 'base:unknown-tag' }), 404, /tag 'unknown-tag' does not exist/)
    is(await api('POST', '/v2/sandboxes', { templateID: 'no-such-template' }), 404, /template 'no-such-template' not found/)
  })
})

describe('api/connect', parallel, () => {
  withSandbox('api/connect: 200 running, 201 paused', async (sandbox) => {
    for (const version of ['', '/v2']) {
      const connect = (body) => api('POST', `${version}/sandboxes/${sandbox.id}/connect`, body)
      const running = is(await connect({ timeout: 300 }), 200)
      assert.equal(running.json.envdAccessToken, sandbox.token)
      assert.equal(running.json.domain, domain)
      is(await sandbox.api('POST', '/pause'), 204)
      const before = Date.now()
      const resumed = is(await connect({ timeout: 300 }), 201)
      assert.equal(resumed.json.envdAccessToken, sandbox.token)
      assert.equal(resumed.json.sandboxID, sandbox.id)
      const info = (await sandbox.api('GET')).json
      assert.ok(Math.abs(new Date(info.endAt) - before - 300_000) < 5_000, `the end is 300 s after the resume: ${info.endAt}`)
      is(await connect({ timeout: 10 ** 8 }), 400)
      is(await connect({ timeout: 'soon' }), 400)
    }
    is(await api('POST', `/v2/sandboxes/${sandbox.id}/connect`), 200)
    for (const version of ['', '/v2']) is(await api('POST', `${version}/sandboxes/${nobody}/connect`, { timeout: 30 }), 404)
  })

  withSandbox('api/connect: never shortens, not by a microsecond', async (sandbox) => {
    const end = async () => (await sandbox.api('GET')).json.endAt
    const before = await end()
    is(await sandbox.api('POST', '/connect', { timeout: 5 }), 200)
    assert.equal(await end(), before)
    is(await sandbox.api('POST', '/connect', { timeout: 900 }), 200)
    assert.ok((await end()) > before)
  })

  withSandbox('api/connect: many at once join one resume', async (sandbox) => {
    const boot = await bootId(sandbox)
    is(await sandbox.api('POST', '/pause', { memory: true }), 204)
    const answers = await Promise.all(Array.from({ length: 12 }, () => api('POST', `/v2/sandboxes/${sandbox.id}/connect`, { timeout: 60 })))
    for (const answer of answers) {
      assert.ok([200, 201].includes(answer.status), answer.text)
      assert.equal(answer.json.envdAccessToken, sandbox.token)
    }
    assert.ok(answers.some((answer) => answer.status === 201))
    assert.equal(await bootId(sandbox), boot)
  })

  withSandbox('api/connect: cold boot when asked for', async (sandbox) => {
    const boot = await bootId(sandbox)
    is(await sandbox.api('POST', '/pause'), 204)
    is(await api('POST', `/v2/sandboxes/${sandbox.id}/connect`, { timeout: 60, memory: false }), 201)
    assert.notEqual(await bootId(sandbox), boot)
  })
})

describe('api/pause', parallel, () => {
  withSandbox('api/pause: statuses', async (sandbox) => {
    is(await sandbox.api('POST', '/pause', '{"memory": 7}'), 400)
    is(await sandbox.api('POST', '/pause', '{broken'), 400)
    is(await sandbox.api('POST', '/pause'), 204)
    is(await sandbox.api('POST', '/pause'), 409, new RegExp(`sandbox '${sandbox.id}' is already paused`))
    const info = is(await sandbox.api('GET'), 200).json
    assert.equal(info.state, 'paused')
    is(await sandbox.api('POST', '/timeout', { timeout: 60 }), 404)
    is(await sandbox.api('PUT', '/network', {}), 404)
    is(await sandbox.api('DELETE'), 204)
    is(await sandbox.api('POST', '/pause'), 404)
    is(await sandbox.api('DELETE'), 404)
    is(await sandbox.api('GET'), 404, /doesn't exist or you don't have access/)
    is(await api('POST', `/sandboxes/${nobody}/pause`), 404)
  })

  withSandbox('api/pause: two at once are one', async (sandbox) => {
    const answers = await Promise.all(Array.from({ length: 6 }, () => sandbox.api('POST', '/pause', { memory: true })))
    // A pause takes about a millisecond: who comes too late for it hears that it is over.
    assert.ok(answers.some((answer) => answer.status === 204))
    for (const answer of answers.filter((answer) => answer.status !== 204)) is(answer, 409, /is already paused/)
    const again = is(await sandbox.api('POST', '/connect', { timeout: 60 }), 201)
    assert.equal(again.json.sandboxID, sandbox.id)
  })

  withSandbox('api/pause: really frozen', async (sandbox) => {
    sandbox.background('while :; do date +%s%N > /home/user/clock; done')
    await until('the clock', async () => (await sandbox.download('/home/user/clock')).status === 200)
    is(await sandbox.api('POST', '/pause', { memory: true }), 204)
    await sleep(700)
    const before = Date.now()
    is(await sandbox.api('POST', '/connect', { timeout: 60 }), 201)
    // The first tick after the pause is not older than the resume, and none happened in between.
    const tick = await until('a tick', async () => {
      const at = Number((await sandbox.download('/home/user/clock')).text) / 1e6
      return at > before - 300 && at
    })
    assert.ok(tick >= before - 300, `${tick} ${before}`)
  })

  withSandbox('api/pause: filesystem only', async (sandbox) => {
    const boot = await bootId(sandbox)
    is(await sandbox.upload('/home/user/kept', 'yes'), 200)
    is(await sandbox.api('POST', '/pause', { memory: false }), 204)
    assert.equal((await sandbox.request('GET', '/health')).status, 502)
    is(await sandbox.api('POST', '/connect', { timeout: 60 }), 201)
    assert.notEqual(await bootId(sandbox), boot)
    assert.equal((await sandbox.download('/home/user/kept')).text, 'yes')
    // And a second time.
    is(await sandbox.api('POST', '/pause', { memory: false }), 204)
    is(await sandbox.api('POST', '/resume', { timeout: 60 }), 201)
    assert.equal((await sandbox.download('/home/user/kept')).text, 'yes')
  })
})

describe('api/resume', parallel, () => {
  withSandbox('api/resume: statuses', async (sandbox) => {
    is(await sandbox.api('POST', '/resume', { timeout: 60 }), 409, /is already running/)
    is(await sandbox.api('POST', '/pause'), 204)
    const resumed = is(await sandbox.api('POST', '/resume', { timeout: 60, autoPause: true }), 201)
    assert.equal(resumed.json.envdAccessToken, sandbox.token)
    const info = (await sandbox.api('GET')).json
    assert.equal(info.lifecycle.onTimeout, 'pause')
    is(await sandbox.api('POST', '/pause'), 204)
    is(await sandbox.api('POST', '/resume'), 201)
    const short = (await sandbox.api('GET')).json
    assert.ok(Math.abs(seconds(short.startedAt, short.endAt) - 15) < 2, `${short.startedAt} ${short.endAt}`)
    is(await api('POST', `/sandboxes/${nobody}/resume`, { timeout: 60 }), 404)
  })
})

describe('api/timeout', parallel, () => {
  withSandbox('api/timeout: refreshes only extend', async (sandbox) => {
    const end = async () => new Date((await sandbox.api('GET')).json.endAt).getTime()
    const before = await end()
    is(await sandbox.api('POST', '/refreshes', { duration: 20 }), 204)
    assert.equal(await end(), before)
    is(await sandbox.api('POST', '/refreshes', { duration: 600 }), 204)
    assert.ok(Math.abs((await end()) - Date.now() - 600_000) < 3_000)
    is(await sandbox.api('POST', '/refreshes'), 204)
    is(await sandbox.api('POST', '/refreshes', { duration: 3601 }), 400)
    is(await sandbox.api('POST', '/refreshes', { duration: -1 }), 400)
    is(await api('POST', `/sandboxes/${nobody}/refreshes`, { duration: 20 }), 404)
  })

  withSandbox('api/timeout: zero ends now', async (sandbox) => {
    is(await sandbox.api('POST', '/timeout', { timeout: 0 }), 204)
    await until('the end', async () => (await sandbox.api('GET')).status === 404, 2_000)
    is(await api('POST', `/sandboxes/${nobody}/timeout`, { timeout: 5 }), 404)
  })

  test('api/timeout: expiry within 100 ms', limited(20), async () => {
    const sandbox = await Raw.create({ timeout: 2 })
    const end = new Date((await sandbox.api('GET')).json.endAt).getTime()
    await sleep(end - Date.now() - 200)
    assert.equal((await sandbox.api('GET')).status, 200)
    await sleep(end + 400 - Date.now())
    assert.equal((await sandbox.api('GET')).status, 404)
    assert.equal((await sandbox.request('GET', '/health')).status, 502)
  })

  withSandbox('api/timeout: auto-resume keeps the timeout of the create', async (sandbox) => {
    is(await sandbox.api('POST', '/timeout', { timeout: 0 }), 204)
    await untilPaused(sandbox)
    assert.equal((await sandbox.request('GET', '/health')).status, 204)
    const info = (await sandbox.api('GET')).json
    assert.equal(info.state, 'running')
    assert.ok(Math.abs(new Date(info.endAt) - Date.now() - 420_000) < 10_000, info.endAt)
  }, { create: { timeout: 420, autoPause: true, autoResume: { enabled: true } } })
})

describe('api/list', parallel, () => {
  // Metadata as the SDKs send it: every part encoded, the pairs form-encoded, and the whole once more.
  const filter = (map) => encodeURIComponent(new URLSearchParams(
    Object.entries(map).map(([key, value]) => [encodeURIComponent(key), encodeURIComponent(value)])).toString())

  test('api/list: pages, cursors and totals', limited(60), async () => {
    const tag = unique('list')
    const made = []
    for (let i = 0; i < 5; i++) made.push(await Raw.create({ metadata: { tag } }))
    try {
      is(await made[1].api('POST', '/pause'), 204)
      is(await made[3].api('POST', '/pause'), 204)
      const list = (query) => api('GET', `/v2/sandboxes?metadata=${filter({ tag })}${query}`)
      const ids = (answer) => answer.json.map((entry) => entry.sandboxID)
      const all = made.map((sandbox) => sandbox.id)
      for (const [order, expected] of [['asc', all], ['desc', [...all].reverse()]]) {
        const seen = []
        let token = ''
        for (let page = 0; page < 3; page++) {
          const answer = is(await list(`&order=${order}&limit=2${token && `&nextToken=${token}`}`), 200)
          seen.push(...ids(answer))
          token = answer.headers['x-next-token'] ? encodeURIComponent(answer.headers['x-next-token']) : ''
          assert.equal(Boolean(token), page < 2, `page ${page}`)
          assert.equal(answer.headers['x-total-running'], '3')
        }
        assert.deepEqual(seen, expected, order)
      }
      const first = await list('&limit=1')
      is(await list(`&limit=1&order=asc&nextToken=${encodeURIComponent(first.headers['x-next-token'])}`), 400, /Invalid next token/)
      is(await list('&nextToken=%21%21'), 400, /Invalid next token/)
      for (const bad of ['&limit=0', '&limit=101', '&limit=x', '&state=broken', '&order=up', '&template=base:tag', '&startedAfter=soon']) {
        is(await list(bad), 400)
      }
      const pausedOnes = is(await list('&state=paused'), 200)
      assert.deepEqual(ids(pausedOnes), [made[3].id, made[1].id])
      assert.equal(pausedOnes.headers['x-total-running'], undefined)
      assert.deepEqual(ids(is(await list('&state=running,paused'), 200)).length, 5)
      assert.deepEqual(ids(await list('&template=unknown-template')), [])
      // v1: running ones only, no pages.
      const v1 = is(await api('GET', `/sandboxes?metadata=${filter({ tag })}`), 200)
      assert.deepEqual(ids(v1), [made[4].id, made[2].id, made[0].id])
    } finally {
      await Promise.all(made.map((sandbox) => sandbox.kill()))
    }
  })

  test('api/list: metadata with special characters', limited(30), async () => {
    const metadata = { 'a key & more': 'a=b&c=d %25 ü', tag: unique('special') }
    const sandbox = await Raw.create({ metadata })
    try {
      const found = is(await api('GET', `/v2/sandboxes?metadata=${filter(metadata)}`), 200)
      assert.deepEqual(found.json.map((entry) => [entry.sandboxID, entry.metadata]), [[sandbox.id, metadata]])
      is(await api('GET', '/v2/sandboxes?metadata=a%3Db%3Dc'), 400)
    } finally {
      await sandbox.kill()
    }
  })

  withSandbox('api/list: info tells what was asked for', async (sandbox) => {
    const info = is(await sandbox.api('GET'), 200).json
    assert.deepEqual(info.network, {
      allowPublicTraffic: false, allowOut: ['1.1.1.1'], denyOut: ['0.0.0.0/0'], maskRequestHost: 'masked.example:${PORT}',
      egressProxy: { address: '203.0.113.80:1080', username: 'guest' },
    })
    assert.deepEqual(info.lifecycle, { autoResume: true, onTimeout: 'pause' })
    assert.equal(info.allowInternetAccess, true)
    assert.equal(info.domain, domain)
    assert.equal(info.envdAccessToken, sandbox.token)
    assert.equal(info.alias, 'base')
    assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128 && info.diskSizeMB > 0)
    assert.ok(!JSON.stringify(info).includes('hidden'), 'the password of the proxy is not told')
  }, {
    create: {
      autoPause: true, autoResume: { enabled: true }, allow_internet_access: true,
      network: {
        allowPublicTraffic: false, allowOut: ['1.1.1.1'], denyOut: ['0.0.0.0/0'], maskRequestHost: 'masked.example:${PORT}',
        egressProxy: { address: '203.0.113.80:1080', username: 'guest', password: 'hidden' },
      },
    },
  })
})

describe('api/observe', parallel, () => {
  withSandbox('api/observe: metrics', async (sandbox) => {
    const metrics = (query = '') => sandbox.api('GET', `/metrics${query}`)
    is(await metrics('?start=200&end=100'), 400, /Invalid time range/)
    is(await metrics('?start=x'), 400)
    is(await api('GET', `/sandboxes/${nobody}/metrics`), 404)
    const points = await until('a point', async () => {
      const found = is(await metrics(), 200).json
      return found.length > 0 && found
    }, 20_000)
    for (const field of ['timestamp', 'timestampUnix', 'cpuCount', 'cpuUsedPct', 'memUsed', 'memTotal', 'memCache', 'diskUsed', 'diskTotal']) {
      assert.notEqual(points[0][field], undefined, field)
    }
    const now = Math.floor(Date.now() / 1000)
    assert.deepEqual((await metrics(`?start=${now - 7200}&end=${now - 3600}`)).json, [])
    const last = is(await api('GET', `/sandboxes/metrics?sandbox_ids=${sandbox.id},${nobody}`), 200).json
    assert.deepEqual(Object.keys(last.sandboxes), [sandbox.id])
    is(await api('GET', `/sandboxes/metrics?sandbox_ids=${Array(101).fill('a').join(',')}`), 400)
  }, { seconds: 40 })

  withSandbox('api/observe: logs', async (sandbox) => {
    await sandbox.run('echo logged; exit 3')
    const v1 = is(await sandbox.api('GET', '/logs'), 200).json
    assert.ok(v1.logs.length > 0 && v1.logEntries.length === v1.logs.length, JSON.stringify(v1).slice(0, 500))
    for (const { timestamp, line } of v1.logs) {
      assert.ok(!Number.isNaN(Date.parse(timestamp)))
      assert.ok(JSON.parse(line).level, line)
    }
    for (const entry of v1.logEntries) {
      assert.ok(['debug', 'info', 'warn', 'error'].includes(entry.level) && typeof entry.message === 'string' && entry.fields, JSON.stringify(entry))
    }
    const v2 = (query = '') => api('GET', `/v2/sandboxes/${sandbox.id}/logs${query}`)
    const all = is(await v2(), 200).json.logs
    assert.ok(all.length > 0)
    const times = (await v2('?direction=forward')).json.logs.map((entry) => Date.parse(entry.timestamp))
    assert.deepEqual(times, [...times].sort((a, b) => a - b))
    assert.equal((await v2('?limit=1')).json.logs.length, 1)
    assert.deepEqual((await v2('?search=nothing-like-this-was-ever-logged')).json.logs, [])
    assert.ok((await v2('?level=error')).json.logs.every((entry) => entry.level === 'error'))
    is(await v2('?limit=1001'), 400)
    is(await v2('?direction=sideways'), 400)
    is(await api('GET', `/sandboxes/${nobody}/logs`), 404)
    is(await api('GET', `/v2/sandboxes/${nobody}/logs`), 404)
  })
})

describe('api/figures', () => {
  test('api/figures: Prometheus on a port of its own', limited(30), async () => {
    const url = new URL(JSON.parse(readFileSync(`${process.env.ATOLL_E2E_HOME}/state/server.json`, 'utf8')).metrics ?? 'http://127.0.0.1:9464/metrics')
    const figure = async (name) => {
      const answer = await request('GET', url.pathname, { base: url })
      assert.equal(answer.status, 200, answer.text)
      assert.match(answer.headers['content-type'], /^text\/plain/)
      return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(answer.text)?.[1])
    }
    const [created, killed] = [await figure('atoll_creates_total'), await figure('atoll_kills_total')]
    const sandbox = await Raw.create()
    await sandbox.kill()
    assert.ok((await figure('atoll_creates_total')) > created)
    assert.ok((await figure('atoll_kills_total')) > killed)
    // Not on the ports of clients.
    assert.equal((await request('GET', '/metrics')).status, 404)
  })
})

describe('api/network', parallel, () => {
  withSandbox('api/network: statuses of the update', async (sandbox) => {
    const put = (body, headers) => sandbox.api('PUT', '/network', body, headers)
    is(await put({ denyOut: ['8.8.8.8'] }), 204)
    assert.deepEqual((await sandbox.api('GET')).json.network.denyOut, ['8.8.8.8'])
    is(await put({}), 204)
    assert.deepEqual((await sandbox.api('GET')).json.network.denyOut ?? [], [])
    is(await put({ denyOut: ['nonsense'] }), 400, /invalid denied CIDR nonsense/)
    is(await put({ allowOut: ['example.com'] }), 400, /ALL_TRAFFIC/)
    is(await put('{broken'), 400)
    is(await put({ denyOut: 'text' }), 400)
    // 401 comes before everything else.
    assert.equal((await request('PUT', '/sandboxes/---/network', { headers: { 'Content-Type': 'application/json' }, body: '{}' })).status, 401)
    is(await api('PUT', `/sandboxes/${nobody}/network`, {}), 404)
    // Ingress is untouched.
    assert.equal((await sandbox.api('GET')).json.network.maskRequestHost, 'kept.example')
  }, { create: { network: { maskRequestHost: 'kept.example' } } })
})

describe('api/teams', () => {
  const admin = (method, path, body, team, token = adminToken()) =>
    request(method, path, {
      headers: { 'X-Admin-Token': token, ...(team && { 'X-Team-ID': team }), ...(body && { 'Content-Type': 'application/json' }) },
      body: body && JSON.stringify(body),
    })
  const teams = async () => is(await request('GET', '/teams', { headers: { Authorization: `Bearer ${apiKey}` } }), 200).json
  const withKey = (key, method, path, body) =>
    request(method, path, {
      headers: { 'X-API-KEY': key, ...(body && { 'Content-Type': 'application/json' }) }, body: body && JSON.stringify(body),
    })

  test('api/teams: keys come and go', limited(30), async () => {
    const [team] = await teams()
    assert.ok(team.teamID && team.name && team.apiKey && typeof team.isDefault === 'boolean', JSON.stringify(team))
    const made = is(await admin('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'made by the test' }), 201).json
    assert.match(made.key, /^e2b_[0-9a-f]{40}$/)
    assert.equal(made.mask.prefix, 'e2b_')
    assert.equal(made.mask.valueLength, 40)
    is(await withKey(made.key, 'GET', '/v2/sandboxes'), 200)
    const listed = is(await admin('GET', '/api-keys', undefined, team.teamID), 200).json
    const found = listed.find((entry) => entry.id === made.id)
    assert.equal(found.name, 'made by the test')
    assert.ok(!JSON.stringify(listed).includes(made.key.slice(4)), 'lists show masks only')
    is(await admin('PATCH', `/api-keys/${made.id}`, { name: 'renamed' }, team.teamID), 200)
    assert.equal((await admin('GET', '/api-keys', undefined, team.teamID)).json.find((entry) => entry.id === made.id).name, 'renamed')
    is(await admin('DELETE', `/admin/teams/${team.teamID}/api-keys/${made.id}`), 204)
    is(await withKey(made.key, 'GET', '/v2/sandboxes'), 401, /Invalid API key/)
    is(await admin('DELETE', `/admin/teams/${team.teamID}/api-keys/${made.id}`), 404)
  })

  test('api/teams: the administrator', limited(30), async () => {
    const [team] = await teams()
    is(await admin('GET', '/admin/sandboxes/running-counts', undefined, undefined, 'wrong'), 401)
    assert.ok([401, 403].includes((await api('GET', '/admin/sandboxes/running-counts')).status))
    const sandbox = await Raw.create()
    try {
      const counts = is(await admin('GET', '/admin/sandboxes/running-counts'), 200).json
      assert.ok(counts[team.teamID] >= 1, JSON.stringify(counts))
      // On behalf of a team.
      const seen = is(await admin('GET', `/sandboxes/${sandbox.id}`, undefined, team.teamID), 200)
      assert.equal(seen.json.sandboxID, sandbox.id)
      const nodes = is(await admin('GET', '/nodes'), 200).json
      assert.equal(nodes.length, 1)
      assert.equal(nodes[0].status, 'ready')
      assert.ok(nodes[0].sandboxCount >= 1)
      is(await admin('GET', `/nodes/${nodes[0].id}`), 200)
      is(await admin('GET', '/nodes/unknown'), 404)
    } finally {
      await sandbox.kill()
    }
    is(await admin('POST', '/admin/teams/00000000-0000-0000-0000-000000000000/sandboxes/kill'), 404)
  })

  test('api/teams: another team sees nothing', limited(60), async () => {
    const made = JSON.parse(execFileSync(process.env.ATOLL_E2E_ATOLL,
      ['key', 'create', 'the other', '--team', unique('other'), '--json', '--home', process.env.ATOLL_E2E_HOME], { encoding: 'utf8' }))
    const key = made.key
    const theirs = (method, path, body) => withKey(key, method, path, body)
    const sandbox = await Raw.create({ metadata: { tag: unique('mine') } })
    let other
    try {
      assert.deepEqual(is(await theirs('GET', '/v2/sandboxes'), 200).json, [])
      const path = `/sandboxes/${sandbox.id}`
      for (const [method, suffix, body] of [
        ['GET', ''], ['DELETE', ''], ['POST', '/connect', { timeout: 60 }], ['POST', '/timeout', { timeout: 60 }],
        ['POST', '/refreshes', { duration: 60 }], ['POST', '/pause', {}], ['POST', '/resume', { timeout: 60 }],
        ['PUT', '/network', {}], ['GET', '/metrics'], ['GET', '/logs'],
      ]) {
        assert.equal((await theirs(method, path + suffix, body)).status, 404, `${method} ${suffix}`)
      }
      is(await theirs('GET', `/v2${path}/logs`), 404)
      is(await theirs('POST', `/v2${path}/connect`, {}), 404)
      assert.deepEqual(is(await theirs('GET', `/sandboxes/metrics?sandbox_ids=${sandbox.id}`), 200).json.sandboxes, {})
      assert.equal((await sandbox.api('GET')).status, 200)
      other = is(await theirs('POST', '/v2/sandboxes', { templateID: 'base', timeout: 60 }), 201).json
      assert.equal((await api('GET', `/sandboxes/${other.sandboxID}`)).status, 404)
      // Tokens open only their own sandbox.
      assert.equal((await request('GET', '/files?path=/etc/hostname', {
        base: new URL(`https://49983-${sandbox.id}.${domain}`), headers: { 'X-Access-Token': other.envdAccessToken },
      })).status, 401)
      // The administrator ends all of one team.
      const [team] = is(await request('GET', '/teams', { headers: { Authorization: `Bearer ${key}` } }), 200).json
      const killed = is(await admin('POST', `/admin/teams/${team.teamID}/sandboxes/kill`), 200).json
      assert.deepEqual(killed, { killedCount: 1, failedCount: 0 })
      is(await theirs('GET', `/sandboxes/${other.sandboxID}`), 404)
      assert.equal((await sandbox.api('GET')).status, 200)
    } finally {
      if (other) await theirs('DELETE', `/sandboxes/${other.sandboxID}`)
      await sandbox.kill()
    }
  })
})

describe('api/errors', parallel, () => {
  test('api/errors: who is not let in', limited(20), async () => {
    const call = (headers, path = '/v2/sandboxes') => request('GET', path, { headers })
    is(await call({}), 401, /authorization header is missing/)
    is(await call({ 'X-API-Key': 'nonsense' }), 401, /authorization header is malformed/)
    is(await call({ 'X-API-Key': `e2b_${'0'.repeat(40)}` }), 401, /^Invalid API key/)
    is(await call({}, '/sandboxes/---'), 401)
    is(await call({}, '/sandboxes/metrics'), 401)
    assert.ok([200, 204].includes((await call({}, '/health')).status))
  })

  test('api/errors: routes that are not there', limited(20), async () => {
    is(await api('GET', '/nothing/here'), 404)
    for (const path of ['/volumes', '/secrets']) {
      const answer = await api('GET', path)
      assert.ok([404, 501].includes(answer.status), `${path}: ${answer.text}`)
      assert.equal(answer.json.code, answer.status)
    }
    is(await api('GET', '/sandboxes/UPPER'), 400, /Invalid sandbox ID/)
    is(await api('GET', '/sandboxes/a-b-c'), 400, /Invalid sandbox ID/)
  })

  test('api/errors: preflights need no key', limited(20), async () => {
    const preflight = (base, path) => request('OPTIONS', path, {
      base, headers: { Origin: 'https://page.example', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'x-api-key,content-type' },
    })
    const answer = await preflight(undefined, '/v2/sandboxes')
    assert.ok([200, 204].includes(answer.status), answer.text)
    assert.equal(answer.headers['access-control-allow-origin'], '*')
    const simple = await api('GET', '/v2/sandboxes', undefined, { Origin: 'https://page.example' })
    assert.equal(simple.headers['access-control-allow-origin'], '*')
    assert.match(simple.headers['access-control-expose-headers'] ?? '', /x-next-token/i)
  })
})
