// The lobby page: choose a name, connect, and set up the cards.
import { Tavern } from '/client.js';
import { $, first, hue, note, describe } from '/demo/dom.js';
import { Chat } from '/demo/chat.js';
import { People } from '/demo/people.js';
import { Game } from '/demo/game.js';
import { ConnectionCard } from '/demo/connection.js';
import { PartyCard } from '/demo/party.js';
import { Receiver } from '/demo/events.js';
import { Frames } from '/demo/frames.js';
import { dashboardKey, keyPart } from '/demo/links.js';

const NAMES = ['ann', 'bob', 'cleo', 'dan', 'eve', 'finn', 'gus', 'hana', 'ines', 'joe'];
// Stored per tab: a reload keeps the user, another tab may be another user.
const STORAGE_KEY = 'tavern demo name';

const settings = fetch('/demo/settings.json').then((response) => response.json());
const asked = new URLSearchParams(location.search).get('user') ?? sessionStorage.getItem(STORAGE_KEY);

let over = false;

if (dashboardKey()) for (const link of document.querySelectorAll('a[href="/"]')) link.href = `/${keyPart()}`;

if (asked) enter(asked);
else $('name').value = NAMES[Math.floor(Math.random() * NAMES.length)];
$('name').select();
$('enter').addEventListener('submit', (event) => {
  event.preventDefault();
  const name = $('name').value.trim();
  if (!name) return;
  if (!over) return enter(name);
  // Another user needs a fresh page.
  sessionStorage.setItem(STORAGE_KEY, name);
  location.assign('/demo');
});

async function enter(name) {
  sessionStorage.setItem(STORAGE_KEY, name);
  $('welcome').hidden = true;
  $('refused').hidden = true;
  const frames = new Frames();
  const tavern = new Tavern(undefined, { user: name, statuses: true, WebSocket: frames.WebSocket, fetch: frames.fetch });
  const lobby = tavern.channel('demo#lobby');
  const times = await settings;
  const me = { name, tavern, lobby, times };
  me.chat = new Chat(me);
  me.game = new Game(me);
  me.people = new People(me);
  me.connection = new ConnectionCard(me);
  me.party = new PartyCard(me);
  me.receiver = new Receiver(me);

  tavern.on('closed', ({ error }) => {
    over = true;
    me.receiver.stop();
    sessionStorage.removeItem(STORAGE_KEY);
    $('lobby').hidden = true;
    $('welcome').hidden = false;
    $('refused').hidden = false;
    $('refused').textContent = `The session has ended: ${error.message}`;
    $('name').focus();
  });

  $('second').addEventListener('click', () => {
    const other = NAMES.find((one) => one !== name && !me.people.isHere(one)) ?? `guest-${Date.now() % 10_000}`;
    // Without an opener the window has a storage of its own, so it is another user.
    open(`/demo?user=${encodeURIComponent(other)}${keyPart()}`, '_blank', 'noopener,popup,width=560,height=860');
  });

  $('you-title').textContent = name;
  $('face').textContent = first(name);
  $('face').style.setProperty('--hue', hue(name));
  document.title = `${name} · Tavern demo`;
  $('lobby').hidden = false;
  $('main').focus();

  // The receiver first, and presence before join, so that the page shows its own arrival.
  await me.receiver.begin();
  try {
    await Promise.all([tavern.connect(), join(me)]);
    document.body.dataset.ready = 'yes';
    me.receiver.start();
  } catch (error) {
    if (!over) note(describe(error), true);
  }
}

async function join({ people, chat, game, lobby }) {
  await people.watch();
  await chat.listen();
  await game.restore();
  await lobby.join(game.state());
}
