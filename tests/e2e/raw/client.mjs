// A client to be killed: client.mjs SANDBOX_ID COMMAND. Prints "pid N", then "out" for each piece of output.
import { Sandbox } from '../js/sdk.mjs'

const [id, command] = process.argv.slice(2)
const sandbox = await Sandbox.connect(id)
const handle = await sandbox.commands.run(command, { background: true, timeoutMs: 0, onStdout: () => console.log('out') })
console.log(`pid ${handle.pid}`)
await handle.wait()
