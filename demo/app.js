// The lobby: a name, a session, and the parts of the page around it.
import { Tavern } from '/client.js';
import { $, first, hue, note, words } from '/demo/dom.js';
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

let over = false;

if (asked) enter(asked);
else $('name').value = NAMES[Math.floor(Math.random() * NAMES.length)];
$('name').select();
$('enter').addEventListener('submit', (event) => {
  event.preventDefault();
  const name = $('name').value.trim();
  if (!name) return;
  if (!over) return enter(name);
  // Another person, another page.
  sessionStorage.setItem(KEPT, name);
  location.assign('/demo');
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
    over = true;
    me.receiver.stop();
    sessionStorage.removeItem(KEPT);
    $('lobby').hidden = true;
    $('door').hidden = false;
    $('refused').hidden = false;
    $('refused').textContent = `The session has ended: ${error.message}`;
    $('name').focus();
  });

  $('you-title').textContent = name;
  $('face').textContent = first(name);
  $('face').style.setProperty('--hue', hue(name));
  document.title = `${name} · Tavern demo`;
  $('lobby').hidden = false;
  $('main').focus();

  // The receiver first, and watching before joining: so one sees oneself arrive.
  await me.receiver.begin();
  try {
    await Promise.all([tavern.connect(), arrive(me)]);
    document.body.dataset.ready = 'yes';
    me.receiver.start();
  } catch (error) {
    if (!over) note(words(error), true);
  }
}

async function arrive({ people, chat, game, lobby }) {
  await people.watch();
  await chat.listen();
  await game.restore();
  await lobby.join(game.state());
}
