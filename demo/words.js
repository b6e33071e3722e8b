// Channels, activities and party states in words.

const ACTIVITIES = { in_game_channel: 'playing', solving_puzzles: 'solving puzzles', in_party: 'in a party' };
const CHANGES = { in_game_channel: 'plays', online: 'is online', offline: 'went offline', started_game: 'started a game', ended_game: 'ended a game' };
const PARTY_STATES = {
  forming: 'Waiting for someone to accept.',
  idle: 'Ready for a match.',
  gathering: 'Asking every member …',
  queued: 'In the queue for a match.',
};
const TEXT_MAX = 80;

const plain = (word) => String(word).replaceAll('_', ' ').slice(0, TEXT_MAX);

/** `game#k3f2` is “game k3f2”. */
export function placeText(channel) {
  if (channel === 'demo#lobby') return 'the lobby';
  return String(channel).replace('#', ' ').slice(0, TEXT_MAX);
}

/** What someone does: “playing in game k3f2”. Other apps choose other words for activities. */
export function activityText({ activity, channel }) {
  const word = Object.hasOwn(ACTIVITIES, activity) ? ACTIVITIES[activity] : plain(activity);
  // The id of a party means nothing to others.
  return !channel || channel.startsWith('party#') ? word : `${word} in ${placeText(channel)}`;
}

/** What has changed: “plays in game k3f2”. */
export function changeText(change, channel) {
  const word = Object.hasOwn(CHANGES, change) ? CHANGES[change] : `is now ${plain(change)}`;
  return channel && !channel.startsWith('party#') && !['online', 'offline'].includes(change) ? `${word} in ${placeText(channel)}` : word;
}

export const partyText = (state) => (Object.hasOwn(PARTY_STATES, state) ? PARTY_STATES[state] : plain(state));
