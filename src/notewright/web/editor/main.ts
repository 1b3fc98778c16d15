// The page's editor of a live note: one text with everybody who has it open, and what was done with what is typed.
import { defaultKeymap, indentWithTab } from "@codemirror/commands";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, keymap } from "@codemirror/view";
import { yCollab, yUndoManagerKeymap } from "y-codemirror.next";
import { Awareness } from "y-protocols/awareness";
import * as Y from "yjs";
import { Connection, type Obstacle } from "./connection";
import { cursors, introduce, others } from "./cursors";
import { looks } from "./looks";
import { markdown } from "./markdown";

const WORDS: Record<Obstacle, string> = {
  "unreachable": "Not connected: what you type is kept here until it is back",
  "signed out": "Signed out: sign in in another window, and what you typed here is saved",
  "forbidden": "You may not write here any more: what is not saved is in this window alone",
  "gone": "This note is not here any more: what is not saved is in this window alone",
  "not live": "This note can be edited live no longer: what is not saved is in this window alone",
  "replaced": "This is another document now: copy what is not saved, then open it again",
};
const ANSWER_MS = 10_000;
const READ_ONLY = "Read only: what you type is not taken";

const place = document.getElementById("editor")!;
const shown = document.getElementById("edit-state")!;
const spoken = document.getElementById("edit-said")!;
const people = document.getElementById("edit-people")!;
const { live, document: known, name, label } = place.dataset as Record<string, string>;

const doc = new Y.Doc();
const text = doc.getText("contents");
const awareness = new Awareness(doc);
const me = introduce(name);
awareness.setLocalStateField("user", me);
const writing = new Compartment();
let view: EditorView | null = null;

/** WebSocket addresses are written out: not every browser takes a path. */
function socketAddress(path: string): URL {
  const address = new URL(path, location.href);
  address.protocol = address.protocol.replace("http", "ws");
  return address;
}

/** Asks for this page again: the note may have been renamed, or its document be another one now. */
async function locate(): Promise<URL | Obstacle> {
  const again = `${location.pathname}?document=${encodeURIComponent(known)}`;
  const answer = await fetch(again, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
  if (answer.status === 401) return "signed out";
  if (answer.status === 403) return "forbidden";
  if (answer.status === 404) return "gone";
  if (answer.status === 413 || answer.status === 422) return "not live"; // too large, or not UTF-8
  if (!answer.ok) return "unreachable";
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const found = page.getElementById("editor")?.dataset;
  if (found?.document !== known) return "replaced";
  const renamed = new URL(answer.url).pathname;
  if (renamed !== location.pathname) {
    history.replaceState(null, "", renamed);
    for (const id of ["edit-title", "edit-done"]) document.getElementById(id)!.replaceWith(page.getElementById(id)!);
    document.title = page.title;
  }
  return socketAddress(found.live!);
}

const connection = new Connection(doc, awareness, socketAddress(live), locate, show);

function mount(): EditorView {
  return new EditorView({
    parent: place.attachShadow({ mode: "open" }), // whose sheets are constructed: the page allows no <style>
    root: place.shadowRoot!,
    state: EditorState.create({
      doc: text.toString(),
      extensions: [
        EditorState.lineSeparator.of("\n"), // as in the document; else "\r\n" would count as one letter here and two there
        EditorView.clipboardInputFilter.of((pasted) => pasted.replace(/\r\n?/g, "\n")),
        keymap.of([...yUndoManagerKeymap, ...defaultKeymap, indentWithTab]),
        markdown,
        EditorView.lineWrapping,
        EditorView.perLineTextDirection.of(true),
        EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "true", autocapitalize: "sentences" }),
        writing.of([]),
        looks,
        yCollab(text, null, { undoManager: new Y.UndoManager(text) }),
        cursors(text, awareness),
      ],
    }),
  });
}

/** What is to be said of the text, and whether it is well. */
function told(): [string, boolean] {
  const { link, readOnly, saved } = connection;
  if (!link.open) return link.why ? [WORDS[link.why], false] : ["Connecting…", true];
  if (readOnly) return [READ_ONLY, false];
  return saved ? ["Saved", true] : ["Saving…", true];
}

function show(): void {
  const { link, readOnly, saved } = connection;
  if (link.open && !view) {
    view = mount();
    if (document.activeElement === document.body) view.focus();
  }
  if (!link.open && link.why === "replaced" && saved) location.reload();
  const [words, well] = told();
  if (shown.textContent !== words) {
    // Screen readers hear what is wrong and that it is well again, not every letter's way to the disk.
    if (!well || shown.classList.contains("lost")) spoken.textContent = words;
    shown.textContent = words;
    shown.classList.toggle("lost", !well);
  }
  const stopped = readOnly || (!link.open && link.why !== null && link.why !== "unreachable" && link.why !== "signed out");
  if (view && view.state.readOnly !== stopped) {
    view.dispatch({ effects: writing.reconfigure(stopped ? EditorState.readOnly.of(true) : []) });
  }
}

awareness.on("change", () => {
  const found = others(awareness);
  people.replaceChildren(
    ...found.map((person) => {
      const entry = document.createElement("li");
      entry.className = `who-${person.shade}`;
      entry.textContent = person.name;
      return entry;
    }),
  );
  people.hidden = found.length === 0;
});

// The note may have been renamed meanwhile: "Done" leads to where it is.
document.addEventListener("click", async (event) => {
  const done = event.target instanceof Element && event.target.closest("#edit-done");
  if (!done || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  await locate().catch(() => null);
  location.assign((document.getElementById("edit-done") as HTMLAnchorElement).href);
});
addEventListener("beforeunload", (event) => {
  if (!connection.saved && !connection.readOnly) event.preventDefault();
});
addEventListener("pagehide", () => connection.leave());
addEventListener("pageshow", (event) => event.persisted && connection.comeBack(me));
shown.hidden = document.getElementById("edit-hint")!.hidden = false;
show();
