// Runs radarActions in Node: one JSON action per line, one result per line. node node_driver.cjs MODULES PACKAGE
'use strict'

const [modules, name = 'radar_client'] = process.argv.slice(2)
const load = require('node:module').createRequire(`${modules}/`)
load('minilog').disable()
const radar = load(name)
const { radarActions } = require('./radar_actions.cjs')
const actions = radarActions(radar.constructor, radar.Backoff)

require('node:readline').createInterface({ input: process.stdin }).on('line', async (line) => {
  const action = JSON.parse(line)
  try {
    console.log(JSON.stringify({ ok: (await actions[action.do](action)) ?? null }))
  } catch (fault) {
    console.log(JSON.stringify({ fault: String(fault.stack) }))
  }
}).on('close', () => process.exit(0))
