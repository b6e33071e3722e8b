// The code has what its declarations promise. Only checked by tsc.
import type * as declared from '../tavern.js';
import * as code from '../src/index.js';

const tavern: declared.Tavern = new code.Tavern('http://localhost', {} as declared.Options);
const channel: declared.Channel<string, number> = tavern.channel<string, number>('game#1');
({}) as InstanceType<typeof code.Channel> satisfies Omit<declared.Channel, never>;
({}) as InstanceType<typeof code.Pattern> satisfies Omit<declared.Pattern, never>;
({}) as InstanceType<typeof code.Presence> satisfies Omit<declared.Presence, never>;
({}) as InstanceType<typeof code.Me> satisfies Omit<declared.Me, never>;
({}) as InstanceType<typeof code.PartyClient> satisfies Omit<declared.PartyClient, never>;
({}) as InstanceType<typeof code.TavernError> satisfies declared.TavernError;
// Nothing more is exported than declared, and nothing less.
const names: Record<'Tavern' | 'Channel' | 'Pattern' | 'Emitter' | 'TavernError' | 'Me' | 'PartyClient' | 'Presence', unknown> = code;
const values: Record<keyof typeof code, unknown> = names;
export { channel, values };
