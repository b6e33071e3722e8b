/** React hooks for the Tavern client. Put `<TavernProvider client={tavern}>` around the components that use them. */
import type { ReactElement, ReactNode } from 'react';
import type { Message, Party, PartyClient, PartyEvent, PresenceUser, Published, State, Status, Tavern, TavernError } from './tavern.js';

/** Gives the client to the hooks below it. The app connects and closes the client. */
export function TavernProvider(props: { client: Tavern; children?: ReactNode }): ReactElement;

/** The client of the provider. */
export function useTavern(): Tavern;

/** The state of the connection. */
export function useConnection(): State;

export interface ChannelView<Data> {
  /** The last messages that arrived, the oldest first. */
  messages: readonly Message<Data>[];
  /** The subscription is confirmed. */
  ready: boolean;
  error: TavernError | undefined;
  publish(data: Data, options?: { id?: string; retain?: boolean }): Promise<Published>;
}

/** Subscribes to a channel while the component is mounted. */
export function useChannel<Data = unknown>(
  name: string,
  options?: {
    /** How many messages are kept. Default: 100. */
    keep?: number;
    /** Begin with so many of the last messages. */
    last?: number;
    /** false: without own messages. */
    echo?: boolean;
    onMessage?: (message: Message<Data>) => void;
  },
): ChannelView<Data>;

export interface PresenceView<State> {
  users: readonly PresenceUser<State>[];
  /** All users, anonymous ones included. */
  count: number;
  ready: boolean;
  error: TavernError | undefined;
}

/** Who is in a channel. With a state, this client is present too, as long as the component is mounted. */
export function usePresence<State = unknown>(name: string, state?: State): PresenceView<State>;

/** The status of a user, kept up to date if this user follows them. */
export function useStatus(user: string): Status | undefined;

/** The user's party, their open invites, and the commands. */
export function useParty(): { party: Party | null; invites: readonly PartyEvent[]; commands: PartyClient };
