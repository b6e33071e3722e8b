// A party of two. `node party.mjs bob` waits for an invite and accepts it; `node party.mjs ann bob` invites bob. Both print the members.
import { Tavern } from '../../clients/js/src/index.js';

const [name = 'ann', friend] = process.argv.slice(2);
const tavern = new Tavern(process.env.TAVERN_URL ?? 'http://127.0.0.1:7400', { user: name });
const { party } = tavern;

const together = new Promise((resolve) => {
  party.on('change', (now) => now?.members.length > 1 && resolve(now.members.map(({ user }) => user)));
});
party.on('invite', async ({ user, party_id }) => {
  console.log(`${user} invites you`);
  await party.accept(party_id);
});
await tavern.connect();
console.log('connected');
if (friend) await party.invite(friend);
console.log(`party: ${(await together).join(', ')}`);
// The leader ends it; a member waits until it has ended.
if (friend) await party.disband();
else await new Promise((resolve) => party.on('disband', resolve));
console.log('the party has ended');
await tavern.close();
