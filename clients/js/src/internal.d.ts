/** Types inside the client. */
import type { Party, TavernError, Ticket, Hello } from '../tavern.js';
import type { Channel } from './channel.js';

export type Listener = (event: any) => void;

/** How a session reports to its owner. */
export interface SessionEvents {
  event(event: any): void;
  party(party?: Party<any> | null): void;
  change(type: string, event?: any): void;
  redirected(channel: Channel): void;
  restore(): Promise<{ channel: string; error: TavernError }[]>;
}

/** Why a link ended. `reached`: something answered. */
export interface Ending {
  code?: number;
  error?: TavernError;
  reached?: boolean;
  cause?: unknown;
}

/** How a link reports to its session. */
export interface LinkEvents {
  hello(ok: Hello): void;
  frame(frame: any): void;
  party(party?: Party<any> | null): void;
  alive(): void;
  end(why: Ending): void;
}

/** One connection over one transport. */
export interface Link {
  send(text: string, id: number): void;
  close(): void;
}

/** What a link uses of its session. */
export interface LinkIo {
  token?: string;
  socket(url: string): WebSocket;
  ticket(): Ticket | undefined;
  pollMs(): number;
  address(path: string, query?: Record<string, any>): string;
  get(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response>;
  post(path: string, body: any, ms: number, signal: AbortSignal): Promise<any>;
}

/** A command waiting for its reply. */
export interface Pending {
  id: number;
  op: string;
  text: string;
  repeatable: boolean;
  sent: boolean;
  retries: number;
  timer: any;
  resolve(ok: any): void;
  reject(error: TavernError): void;
}
