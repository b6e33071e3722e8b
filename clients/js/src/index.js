// The Tavern client: one session over WebSocket, SSE or long-poll. Types and documentation are in ../tavern.d.ts.

export { Tavern } from './client.js';
export { Channel, Pattern } from './channel.js';
export { Emitter } from './emitter.js';
export { TavernError } from './errors.js';
export { Me } from './me.js';
export { PartyClient } from './party.js';
export { Presence } from './presence.js';
