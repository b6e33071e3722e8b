// Where a client is in the history of a channel. Pure.
// Must hold: a message is delivered once and in the order of its offsets; missing ones are asked for.

/** @import { Position } from '../tavern.js' */

export class HistoryCursor {
  /** @type {Position | undefined} of the last message; only with history */
  position;
  /** Missing messages were asked for. */
  #heals = false;
  /** A gap was announced: any later message may follow. */
  #jumps = false;

  /** What to do with a message. @param {Partial<Position>} message @returns {'deliver' | 'drop' | 'heal'} */
  take({ epoch, offset }) {
    const known = this.position;
    if (epoch === undefined || offset === undefined) return 'deliver';
    if (known && (epoch < known.epoch || (epoch === known.epoch && offset <= known.offset))) return 'drop';
    if (known && epoch === known.epoch && offset > known.offset + 1 && !this.#jumps) {
      const asked = this.#heals;
      this.#heals = true;
      return asked ? 'drop' : 'heal';
    }
    this.position = { epoch, offset };
    this.#jumps = false;
    return 'deliver';
  }

  /** The reply to `subscribe`. Over HTTP messages may have arrived before it. @param {any} ok */
  replied({ epoch, offset, recovered }) {
    this.#heals = false;
    if (epoch !== undefined && (!this.position || recovered === false)) this.position = { epoch, offset };
  }

  /** The missing messages cannot be asked for at the moment. */
  failed() {
    this.#heals = false;
  }

  announceGap() {
    this.#jumps = true;
  }

  /** A subscription begins elsewhere: any message may come first. Returns where it was. */
  restart() {
    const since = this.position;
    this.position = undefined;
    this.#heals = false;
    return since;
  }
}
