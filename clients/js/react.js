// React hooks. Several components share one subscription; what nobody uses any more ends a moment later, so that StrictMode's
// double mount and a change of page cause no traffic and no flicker of presence.
// Must hold: what the last component leaves behind is ended; no state is set after an unmount.

import { createContext, createElement, useContext, useEffect, useRef, useState, useSyncExternalStore } from 'react';

/** How long something is kept that no component uses. */
const LINGER_MS = 300;

const Context = createContext(/** @type {any} */ (undefined));

/** Gives the client to the hooks below it. */
export function TavernProvider({ client, children }) {
  return createElement(Context.Provider, { value: client }, children);
}

export function useTavern() {
  const tavern = useContext(Context);
  if (!tavern) throw new Error('no client here: put <TavernProvider client={…}> around this component');
  return tavern;
}

/** What components use of each client: name → {users, ends}. */
const used = new WeakMap();

/** Starts something for the first user; ends it a moment after the last. Returns a function that ends this use. */
function share(tavern, name, start, end) {
  let all = used.get(tavern);
  if (!all) used.set(tavern, (all = new Map()));
  const found = all.get(name);
  const use = found ?? { users: 0, started: start() };
  all.set(name, use);
  clearTimeout(use.timer);
  use.users++;
  // A start that failed may be tried again.
  use.started.catch(() => all.get(name) === use && all.delete(name));
  let over = false;
  return {
    started: use.started,
    release() {
      if (over) return;
      over = true;
      if (--use.users) return;
      use.timer = setTimeout(() => {
        if (all.get(name) !== use) return;
        all.delete(name);
        use.started.then(end).catch(() => {});
      }, LINGER_MS);
    },
  };
}

/** Messages and presence of a channel share one subscription: it ends with the last of both. */
function shareChannel(tavern, name, kind, start) {
  const channel = tavern.channel(name);
  const whole = share(tavern, `channel ${name}`, () => Promise.resolve(), () => channel.unsubscribe());
  const part = share(tavern, `${kind} ${name}`, start, () => {});
  return {
    started: part.started,
    release() {
      part.release();
      whole.release();
    },
  };
}

/** The state of the connection. */
export function useConnection() {
  const tavern = useTavern();
  return useSyncExternalStore(
    (changed) => {
      const types = ['open', 'reconnecting', 'resumed', 'reset', 'closed', 'error'];
      for (const type of types) tavern.on(type, changed);
      return () => {
        for (const type of types) tavern.off(type, changed);
      };
    },
    () => tavern.state,
    () => 'idle',
  );
}

/** The last messages of a channel, and what publishes to it. */
export function useChannel(name, { keep = 100, last, echo, onMessage } = {}) {
  const tavern = useTavern();
  const [state, setState] = useState({ name, messages: [], ready: false, error: undefined });
  const listener = useRef(onMessage);
  listener.current = onMessage;
  useEffect(() => {
    const channel = tavern.channel(name);
    let live = true;
    setState({ name, messages: [], ready: false, error: undefined });
    const add = (message) => {
      setState((now) => ({ ...now, messages: [...now.messages, message].slice(-keep) }));
      listener.current?.(message);
    };
    channel.on('message', add);
    const use = shareChannel(tavern, name, 'messages', () => channel.subscribe({ last, echo }));
    use.started.then(
      () => live && setState((now) => ({ ...now, ready: true })),
      (error) => live && setState((now) => ({ ...now, error })),
    );
    return () => {
      live = false;
      channel.off('message', add);
      use.release();
    };
  }, [tavern, name, keep, last, echo]);
  // Until the effect has run, the state is that of another channel.
  const { messages, ready, error } = state.name === name ? state : { messages: [], ready: false, error: undefined };
  return { messages, ready, error, publish: (data, options) => tavern.channel(name).publish(data, options) };
}

/** Who is in a channel. With a state, this client is present too, as long as the component is mounted. */
export function usePresence(name, state) {
  const tavern = useTavern();
  const [shown, setShown] = useState({ name, users: [], count: 0, ready: false, error: undefined });
  const wanted = state === undefined ? undefined : JSON.stringify(state);
  useEffect(() => {
    const channel = tavern.channel(name);
    let live = true;
    let stop = () => {};
    const failed = (error) => live && setShown((now) => ({ ...now, name, error }));
    const use = shareChannel(tavern, name, 'presence', () => channel.presence());
    use.started.then(() => channel.presence()).then((presence) => {
      if (!live) return;
      const draw = () => setShown({ name, users: [...presence.users.values()].map((user) => ({ ...user })), count: presence.count, ready: true, error: undefined });
      presence.on('change', draw);
      stop = () => presence.off('change', draw);
      draw();
    }).catch(failed);
    return () => {
      live = false;
      stop();
      use.release();
    };
  }, [tavern, name]);
  const joins = wanted !== undefined;
  useEffect(() => {
    if (!joins) return undefined;
    const channel = tavern.channel(name);
    const use = share(tavern, `join ${name}`, () => channel.join(JSON.parse(wanted)), () => channel.leave());
    use.started.catch((error) => setShown((now) => ({ ...now, name, error })));
    return use.release;
  }, [tavern, name, joins]);
  const said = useRef(wanted);
  useEffect(() => {
    if (wanted !== undefined && said.current !== undefined && said.current !== wanted) {
      tavern.channel(name).join(JSON.parse(wanted)).catch((error) => setShown((now) => ({ ...now, name, error })));
    }
    said.current = wanted;
  }, [tavern, name, wanted]);
  return shown.name === name ? shown : { users: [], count: 0, ready: false, error: undefined };
}

/** The status of a user, kept up to date if this user follows them. */
export function useStatus(user) {
  const tavern = useTavern();
  const [status, setStatus] = useState(undefined);
  useEffect(() => {
    let live = true;
    setStatus(tavern.me.statuses.get(user));
    const changed = (event) => event.user === user && setStatus(event.status);
    tavern.me.on('status', changed);
    tavern.me.status([user]).then(([now]) => live && setStatus(now), () => {});
    return () => {
      live = false;
      tavern.me.off('status', changed);
    };
  }, [tavern, user]);
  return status?.user === user ? status : undefined;
}

/** The user's party, their open invites, and the commands. */
export function useParty() {
  const { party } = useTavern();
  const [, redraw] = useState(0);
  const types = ['change', 'invite', 'invite_cancel', 'accept', 'decline'];
  useEffect(() => {
    const changed = () => redraw((count) => count + 1);
    for (const type of types) party.on(type, changed);
    changed();
    return () => {
      for (const type of types) party.off(type, changed);
    };
  }, [party]);
  return { party: party.current, invites: [...party.invites.values()], commands: party };
}
