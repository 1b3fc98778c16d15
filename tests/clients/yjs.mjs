// Yjs clients of other people, in one process: y-websocket and @y-sweet/client. Commands come as lines of JSON on
// standard input, and each is answered by one: {"do": "open", "name": …, "kind": "y-websocket", "url": …, "room": …}.
import readline from "node:readline";
import { createYjsProvider } from "@y-sweet/client";
import WebSocket from "ws";
import { WebsocketProvider } from "y-websocket";
import * as Y from "yjs";

console.warn = console.error; // the providers talk; standard output is ours
console.info = console.error;
const say = console.log.bind(console);
console.log = console.error;

const clients = {};

class WithHeaders extends WebSocket {
  static headers = {};
  constructor(url, protocols) {
    super(url, protocols, { headers: WithHeaders.headers });
  }
}

async function clientToken({ auth, bearer, body }) {
  const headers = { "content-type": "application/json", ...(bearer && { authorization: `Bearer ${bearer}` }) };
  const answer = await fetch(auth, { method: "POST", headers, body: JSON.stringify(body ?? {}) });
  if (!answer.ok) throw new Error(`${answer.status}`);
  return await answer.json();
}

const commands = {
  open(asked) {
    const doc = new Y.Doc();
    const one = { doc, text: doc.getText("contents"), denied: 0, closed: null };
    if (asked.kind === "y-websocket") {
      WithHeaders.headers = asked.bearer ? { authorization: `Bearer ${asked.bearer}` } : {};
      const options = { WebSocketPolyfill: WithHeaders, disableBc: true, params: asked.params ?? {}, maxBackoffTime: 500 };
      one.provider = new WebsocketProvider(asked.url, asked.room, doc, options);
      one.provider.on("closed", (event) => (one.closed = event));
      one.synced = () => one.provider.synced;
      one.saved = () => null;
    } else {
      const token = () => clientToken(asked);
      const options = { WebSocketPolyfill: WebSocket, showDebuggerLink: false };
      one.provider = createYjsProvider(doc, asked.doc, token, options);
      one.synced = () => one.provider.synced;
      one.saved = () => !one.provider.hasLocalChanges;
    }
    one.provider.awareness.setLocalStateField("user", { name: asked.name });
    clients[asked.name] = one;
    return {};
  },
  type({ name, words, at }) {
    const { text } = clients[name];
    text.insert(at ?? text.length, words);
    return {};
  },
  keep_typing({ name }) { // forty letters a second, words of one's own at the end of one's own line
    const one = clients[name];
    Object.assign(one, { words: [], left: "", count: 0 });
    one.letter = () => {
      const written = one.text.toString();
      const line = written.indexOf(`${name}:`);
      if (line < 0) return; // not synced yet
      if (!one.left) one.left = ` ${name}${one.count}`;
      const end = written.indexOf("\n", line);
      one.text.insert(end < 0 ? written.length : end, one.left[0]);
      one.left = one.left.slice(1);
      if (!one.left) one.words.push(`${name}${one.count++}`);
    };
    one.typing = setInterval(one.letter, 25);
    return {};
  },
  stop_typing({ name }) {
    clearInterval(clients[name].typing);
    while (clients[name].left) clients[name].letter(); // the word is finished
    return { words: clients[name].words };
  },
  look({ name }) {
    const one = clients[name];
    const others = [...one.provider.awareness.getStates().values()].map((state) => state.user?.name);
    return { text: one.text.toString(), synced: one.synced(), saved: one.saved(), people: others.sort(), closed: one.closed };
  },
  map({ name, map }) {
    return { map: clients[name].doc.getMap(map).toJSON() };
  },
  leave({ name }) {
    clients[name].provider.destroy();
    delete clients[name];
    return {};
  },
};

process.on("uncaughtException", (error) => console.error(error));
for await (const line of readline.createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  try {
    say(JSON.stringify(await commands[asked.do](asked)));
  } catch (error) {
    say(JSON.stringify({ error: `${error}` }));
  }
}
process.exit(0);
