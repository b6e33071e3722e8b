// A board that shows who is here and what they do, live. `node board.mjs NAME STATE`; ends with Ctrl-C.
import { Tavern } from '../../clients/js/src/index.js';

const [name = 'ann', doing = 'here'] = process.argv.slice(2);
const tavern = new Tavern(process.env.TAVERN_URL ?? 'http://127.0.0.1:7400', { user: name });
await tavern.connect();
const board = tavern.channel('room#board');
const present = await board.presence();

function show() {
  const rows = [...present.users.values()].map(({ user, clients, leaving }) => {
    const states = [...clients.values()].map((state) => state?.doing).filter(Boolean);
    return `${user} (${leaving ? 'connection lost' : states.join(', ')})`;
  });
  console.log(rows.sort().join(', ') || 'nobody');
}

present.on('change', show);
await board.join({ doing });
// Leaves at once; without it the user stays for the grace period.
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => tavern.close().then(() => process.exit()));
