// What is wrong with the cluster, and which nodes started and ended: from the answer of /v1/load.
import { bytes, now, plural, span } from './format.js';

const RECENT_MS = 3_600_000;
const DISK_LEAST = 1 << 30;
const OFFSET_MOST_MS = 1000;

/** The lifetimes of each node, the last one first. */
export function lastRuns(runs) {
  const byNode = new Map();
  for (const run of runs) byNode.set(run.node, [...(byNode.get(run.node) ?? []), run]);
  return byNode;
}

/** Why a node is not well, as [kind, label, text]; undefined: it is. */
export function nodeProblem({ alive, silent_ms: silent, store_up: store, bus_up: bus, stopping, uptime_ms: up }) {
  if (!alive) return undefined;
  // It may have begun a moment ago.
  if (silent !== null) return ['bad', 'no answer', up ? `has not answered for ${span(silent)}; its lease still runs` : 'has never answered this node; its lease runs'];
  if (!store) return ['bad', 'store', 'the store does not accept its lease'];
  if (!bus) return ['bad', 'bus', 'its bus does not answer: it cannot reach the other nodes'];
  return stopping ? ['warn', 'stopping', 'is stopping'] : undefined;
}

export function problemsOf({ nodes, runs, cluster: { figures } }) {
  const found = [];
  const add = (kind, label, node, text) => found.push({ kind, label, node, text });
  for (const node of nodes) {
    const [kind, label, text] = nodeProblem(node) ?? [];
    if (kind) add(kind, label, node.node, text);
    const { disk_free_bytes: free, clock_offset_ms: offset = 0 } = node.figures;
    if (node.alive && free < DISK_LEAST) add('warn', 'disk', node.node, `${bytes(free)} free`);
    if (node.alive && Math.abs(offset) > OFFSET_MOST_MS) add('warn', 'clock', node.node, `its clock is ${span(Math.abs(offset))} ${offset > 0 ? 'ahead' : 'behind'}`);
  }
  if (figures.dropped > 0) add('warn', 'dropped', undefined, 'unread messages are dropped: clients do not read, or the mailboxes are too small');
  for (const [node, [last, ...before]] of lastRuns(runs)) {
    const since = span(Math.max(0, now() - (last.ended_at ?? last.started_at)));
    if (last.ended_at !== null && !last.clean) {
      add(now() - last.ended_at < RECENT_MS ? 'bad' : 'warn', 'node died', node, `${since} ago, without a clean stop; the other nodes have taken over its clients`);
    } else if (last.ended_at === null && before.length) {
      const died = before.filter(({ clean }) => !clean).length;
      add(died ? 'warn' : 'plain', died ? 'died and restarted' : 'restarted', node, `${since} ago${before.length > 1 ? `; ${plural(before.length, 'restart')} in the last day` : ''}`);
    }
  }
  const weight = ({ kind }) => ['bad', 'warn', 'plain'].indexOf(kind);
  return found.sort((a, b) => weight(a) - weight(b));
}
