// The y-websocket protocol with frame 102: the server sends it back once everything before it is on its disk.
import * as decoding from "lib0/decoding";
import * as encoding from "lib0/encoding";
import { applyAwarenessUpdate, encodeAwarenessUpdate, removeAwarenessStates, type Awareness } from "y-protocols/awareness";
import { readSyncMessage, messageYjsSyncStep1, messageYjsSyncStep2, writeSyncStep1, writeUpdate } from "y-protocols/sync";
import type * as Y from "yjs";

const SYNC = 0;
const AWARENESS = 1;
const AUTH = 2;
const QUERY_AWARENESS = 3;
const ACKNOWLEDGED = 102;

const ACKNOWLEDGE_DELAY_MS = 50; // one 102 for a burst of typing
const PROBE_MS = 15_000; // how often an idle connection is asked whether it is alive
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 10_000;
const TOO_BIG = 1009;

/** What keeps us away: nobody answers, or the answer that was given. */
export type Obstacle = "unreachable" | "signed out" | "forbidden" | "gone" | "not live" | "replaced";

/** `open` only once both sides have what the other had. */
export type Link = { open: true } | { open: false; why: Obstacle | null };

/** Where to connect now, or why not. Asked before each attempt but the first. */
export type Locate = () => Promise<URL | Obstacle>;

export class Connection {
  link: Link = { open: false, why: null };
  readOnly = false;
  private socket: WebSocket | null = null;
  private answered = false; // the server has had all that was changed before it came
  private changes = 0; // made here
  private acknowledged = 0; // of them
  private failures = 0;
  private retry: number | undefined;
  private asking: number | undefined;
  private probed = false; // and not answered yet
  private left = false;

  constructor(
    private readonly doc: Y.Doc,
    private readonly awareness: Awareness,
    first: URL,
    private readonly locate: Locate,
    private readonly changed: () => void,
  ) {
    doc.on("update", (update: Uint8Array, origin: unknown) => {
      if (origin === this) return;
      this.changes += 1;
      if (this.answered) {
        this.send(SYNC, (frame) => writeUpdate(frame, update));
        this.askSoon();
      }
      this.changed();
    });
    awareness.on("update", (what: { added: number[]; updated: number[]; removed: number[] }, origin: unknown) => {
      if (origin !== this) this.tellAwareness([...what.added, ...what.updated, ...what.removed]);
    });
    setInterval(() => this.probe(), PROBE_MS);
    addEventListener("online", () => this.retryNow());
    document.addEventListener("visibilitychange", () => !document.hidden && this.retryNow());
    this.connect(first);
  }

  /** Whether the server's disk has everything that was typed here. */
  get saved(): boolean {
    return this.acknowledged === this.changes;
  }

  /** Say goodbye: the others see the cursor go at once. */
  leave(): void {
    this.left = true;
    removeAwarenessStates(this.awareness, [this.doc.clientID], "leaving");
    this.socket?.close(1000);
  }

  /** The page is looked at again after all. */
  comeBack(user: object): void {
    this.left = false;
    this.awareness.setLocalState({ user });
    this.retryNow();
  }

  // ---- the socket -------------------------------------------------------------------------------------

  private connect(address: URL): void {
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      this.send(SYNC, (frame) => writeSyncStep1(frame, this.doc));
      this.awareness.setLocalState(this.awareness.getLocalState()); // told anew: a server forgets nobody's old clock
    };
    socket.onmessage = (event) => {
      if (event.data instanceof ArrayBuffer) this.hear(new Uint8Array(event.data));
    };
    socket.onclose = (event) => this.closed(socket, event.code);
  }

  private closed(socket: WebSocket, code: number): void {
    if (socket !== this.socket) return;
    this.socket = null;
    this.answered = this.probed = false;
    clearTimeout(this.asking);
    this.asking = undefined;
    const others = [...this.awareness.getStates().keys()].filter((id) => id !== this.doc.clientID);
    removeAwarenessStates(this.awareness, others, this);
    this.lost(code === TOO_BIG ? "not live" : "unreachable");
  }

  private lost(why: Obstacle): void {
    this.link = { open: false, why };
    this.changed();
    if (this.left || why === "replaced") return;
    const wait = Math.min(FIRST_RETRY_MS * 2 ** this.failures, MAX_RETRY_MS);
    this.failures += 1;
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.tryAgain(), wait * (0.75 + Math.random() / 2));
  }

  private retryNow(): void {
    if (this.socket || this.left || (!this.link.open && this.link.why === "replaced")) return;
    clearTimeout(this.retry);
    this.failures = 0;
    this.tryAgain();
  }

  private async tryAgain(): Promise<void> {
    this.retry = undefined;
    const where = await this.locate().catch((): Obstacle => "unreachable");
    if (this.socket || this.left) return;
    if (where instanceof URL) this.connect(where);
    else this.lost(where);
  }

  // ---- frames -----------------------------------------------------------------------------------------

  private send(kind: number, write: (frame: encoding.Encoder) => void): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const frame = encoding.createEncoder();
    encoding.writeVarUint(frame, kind);
    write(frame);
    this.socket.send(encoding.toUint8Array(frame) as Uint8Array<ArrayBuffer>);
  }

  private hear(data: Uint8Array): void {
    this.probed = false;
    const frame = decoding.createDecoder(data);
    const kind = decoding.readVarUint(frame);
    if (kind === SYNC) this.hearSync(frame);
    else if (kind === AWARENESS) applyAwarenessUpdate(this.awareness, decoding.readVarUint8Array(frame), this);
    else if (kind === QUERY_AWARENESS) this.tellAwareness([...this.awareness.getStates().keys()]);
    else if (kind === ACKNOWLEDGED) this.hearAcknowledged(frame);
    else if (kind === AUTH) {
      this.readOnly = true; // its only message: permission denied
      this.changed();
    }
  }

  private hearSync(frame: decoding.Decoder): void {
    const answer = encoding.createEncoder();
    encoding.writeVarUint(answer, SYNC);
    const kind = readSyncMessage(frame, answer, this.doc, this);
    if (kind === messageYjsSyncStep1) {
      this.socket?.send(encoding.toUint8Array(answer) as Uint8Array<ArrayBuffer>);
      this.answered = true;
      this.ask();
    } else if (kind === messageYjsSyncStep2 && !this.link.open) {
      this.link = { open: true };
      this.readOnly = !this.answered; // who may only read is not asked for what they have
      this.failures = 0;
      this.changed();
    }
  }

  private hearAcknowledged(frame: decoding.Decoder): void {
    const payload = decoding.createDecoder(decoding.readVarUint8Array(frame));
    this.acknowledged = Math.max(this.acknowledged, decoding.readVarUint(payload));
    this.changed();
  }

  private ask(): void {
    clearTimeout(this.asking);
    this.asking = undefined;
    const payload = encoding.createEncoder();
    encoding.writeVarUint(payload, this.changes);
    this.send(ACKNOWLEDGED, (frame) => encoding.writeVarUint8Array(frame, encoding.toUint8Array(payload)));
  }

  private askSoon(): void {
    this.asking ??= setTimeout(() => this.ask(), ACKNOWLEDGE_DELAY_MS);
  }

  /** A connection that is dead without a close is found by what it does not answer. */
  private probe(): void {
    if (!this.socket) return;
    if (this.probed) {
      const dead = this.socket;
      dead.onclose = dead.onmessage = null;
      dead.close();
      this.closed(dead, 1006);
    } else if (this.answered) {
      this.probed = true;
      this.ask();
    }
  }

  private tellAwareness(clients: number[]): void {
    const told = encodeAwarenessUpdate(this.awareness, clients);
    this.send(AWARENESS, (frame) => encoding.writeVarUint8Array(frame, told));
  }
}
