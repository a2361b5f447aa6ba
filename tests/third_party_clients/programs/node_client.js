// Asks what is planned, approves all of it, asks again. Node's own http module, or its fetch; nothing else.
// Arguments: the URL of the events, and how to treat connections: global, keep, close or fetch.
// Prints each answer: status, body, what it says about the connection, and whether the request came on a used one.
'use strict'
const http = require('node:http')

const AGENTS = {
  global: () => http.globalAgent,
  keep: () => new http.Agent({ keepAlive: true, maxSockets: 1 }),
  close: () => new http.Agent({ keepAlive: false })
}

function request (agent, url, method, body) {
  return new Promise((resolve, reject) => {
    const asked = http.request(url, { agent, method, headers: { Metadata: 'true' } }, (response) => {
      const parts = []
      response.on('data', (part) => parts.push(part))
      response.on('error', reject)
      response.on('end', () => resolve({
        status: response.statusCode,
        body: Buffer.concat(parts).toString(),
        connection: response.headers.connection ?? null,
        reused: asked.reusedSocket
      }))
    })
    asked.on('error', reject)
    if (body !== undefined) asked.write(body) // without a length, so that it is sent in chunks
    asked.end()
  })
}

async function fetched (url, method, body) {
  const response = await fetch(url, { method, body, headers: { Metadata: 'true' } })
  return {
    status: response.status,
    body: await response.text(),
    connection: response.headers.get('connection'),
    reused: null
  }
}

async function main (url, how) {
  const agent = AGENTS[how]?.()
  const ask = agent === undefined ? fetched : (...question) => request(agent, ...question)
  const before = await ask(url, 'GET')
  const approval = { StartRequests: JSON.parse(before.body).Events.map(({ EventId }) => ({ EventId })) }
  const approved = await ask(url, 'POST', JSON.stringify(approval))
  const after = await ask(url, 'GET')
  console.log(JSON.stringify([before, approved, after]))
  agent?.destroy()
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error)
  process.exitCode = 1
})
