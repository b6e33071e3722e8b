// The lobby: a name, a session, and the parts of the page around it.
import { Tavern } from '/client.js';
import { $, first, hue } from '/demo/dom.js';
import { Chat } from '/demo/chat.js';
import { People } from '/demo/people.js';
import { Game } from '/demo/game.js';
import { Plug } from '/demo/plug.js';
import { PartyCard } from '/demo/party.js';
import { Receiver } from '/demo/events.js';

const NAMES = ['ann', 'bob', 'cleo', 'dan', 'eve', 'finn', 'gus', 'hana', 'ines', 'joe'];
// The name belongs to the tab: a reload comes back as the same person, another tab may be somebody else.
const KEPT = 'tavern demo name';

const house = fetch('/demo/house.json').then((response) => response.json());
const asked = new URLSearchParams(location.search).get('user') ?? sessionStorage.getItem(KEPT);

if (asked) enter(asked);
else $('name').value = NAMES[Math.floor(Math.random() * NAMES.length)];
$('name').select();
$('enter').addEventListener('submit', (event) => {
  event.preventDefault();
  const name = $('name').value.trim();
  if (name) enter(name);
});

async function enter(name) {
  sessionStorage.setItem(KEPT, name);
  $('door').hidden = true;
  $('refused').hidden = true;
  const tavern = new Tavern(undefined, { user: name, statuses: true });
  const lobby = tavern.channel('lobby#demo');
  const times = await house;
  const me = { name, tavern, lobby, times };
  me.chat = new Chat(me);
  me.game = new Game(me);
  me.people = new People(me);
  me.plug = new Plug(me);
  me.party = new PartyCard(me);
  me.receiver = new Receiver(me);

  tavern.on('closed', ({ error }) => {
    $('lobby').hidden = true;
    $('door').hidden = false;
    $('refused').hidden = false;
    $('refused').textContent = `The session has ended: ${error.message}. Choose a name to come in again.`;
    sessionStorage.removeItem(KEPT);
    me.receiver.stop();
    $('enter').replaceWith($('enter').cloneNode(true));
    $('enter').addEventListener('submit', () => location.assign('/demo'));
  });

  $('you-title').textContent = name;
  $('face').textContent = first(name);
  $('face').style.setProperty('--hue', hue(name));
  document.title = `${name} · Tavern demo`;
  $('lobby').hidden = false;
  $('main').focus();

  // The receiver first, and watching before joining: so one sees oneself arrive.
  await me.receiver.begin();
  tavern.connect().catch(() => {});
  await me.people.watch();
  await me.chat.listen();
  await me.game.restore();
  await lobby.join(me.game.state());
  me.receiver.start();
  document.body.dataset.ready = 'yes';
}
