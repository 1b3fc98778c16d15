// Where the others are, with their names. Drawn with classes alone: the page allows no style attribute, and nothing
// that another client sends becomes more than text and a position.
import { Annotation, RangeSet, type Extension, type Range } from "@codemirror/state";
import { Decoration, EditorView, ViewPlugin, WidgetType, type DecorationSet, type ViewUpdate } from "@codemirror/view";
import type { Awareness } from "y-protocols/awareness";
import * as Y from "yjs";

const MAX_DRAWN = 50;
const MAX_NAME_CHARS = 40;
const COLORS = ["#9c2f5f", "#1f6f4a", "#8a4b08", "#5b3fa8", "#1d5fa8", "#a3312b", "#4a6a12", "#7a2d8c"];

export type Person = { client: number; name: string; shade: number };
type Span = { anchor: number; head: number };

/** Which of the colours somebody of this name has, in every window. */
function shadeOf(name: string): number {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)!) % 65_521;
  return sum % COLORS.length;
}

/** What we tell others about ourselves; other editors draw us in the colour that is said. */
export function introduce(name: string): { name: string; color: string; colorLight: string } {
  const color = COLORS[shadeOf(name)];
  return { name, color, colorLight: `${color}33` };
}

/** Everybody else who has this note open. */
export function others(awareness: Awareness): Person[] {
  const found: Person[] = [];
  for (const [client, state] of awareness.getStates()) {
    if (client === awareness.clientID || found.length === MAX_DRAWN) continue;
    const said: unknown = state?.user?.name;
    const name = (typeof said === "string" && said.trim().slice(0, MAX_NAME_CHARS)) || "somebody";
    found.push({ client, name, shade: shadeOf(name) });
  }
  return found;
}

class Caret extends WidgetType {
  constructor(private readonly person: Person) {
    super();
  }

  override eq(other: Caret): boolean {
    return other.person.name === this.person.name && other.person.client === this.person.client;
  }

  override toDOM(): HTMLElement {
    const caret = document.createElement("span");
    caret.className = `cm-caret cm-who${this.person.shade}`;
    caret.ariaHidden = "true"; // read aloud it would be part of the text; the list of people has the names
    caret.dataset.name = this.person.name; // drawn by looks.ts, so that it is no text of the note
    return caret;
  }

  override ignoreEvent(): boolean {
    return true;
  }
}

/** Shows others' cursors and selections, and tells them ours. */
export function cursors(text: Y.Text, awareness: Awareness): Extension {
  const moved = Annotation.define<true>();

  /** Where somebody is in the text as it is now; nowhere if what they say makes no sense here. */
  function spanOf(client: number, length: number): Span | null {
    try {
      const said = awareness.getStates().get(client)?.cursor;
      const [anchor, head] = [said.anchor, said.head].map((end) => {
        const found = Y.createAbsolutePositionFromRelativePosition(Y.createRelativePositionFromJSON(end), text.doc!);
        return found?.type === text ? Math.min(found.index, length) : null;
      });
      return anchor === null || head === null ? null : { anchor, head };
    } catch {
      return null;
    }
  }

  function drawn(view: EditorView): DecorationSet {
    const ranges: Range<Decoration>[] = [];
    for (const person of others(awareness)) {
      const span = spanOf(person.client, view.state.doc.length);
      if (!span) continue;
      const { anchor, head } = span;
      if (anchor !== head) {
        const marked = Decoration.mark({ class: `cm-marked cm-who${person.shade}` });
        ranges.push(marked.range(Math.min(anchor, head), Math.max(anchor, head)));
      }
      ranges.push(Decoration.widget({ widget: new Caret(person), side: head > anchor ? -1 : 1 }).range(head));
    }
    return Decoration.set(ranges, true);
  }

  function tell(view: EditorView): void {
    const state = awareness.getLocalState();
    if (!state || !view.hasFocus) return; // who looks away keeps the place they had
    const { anchor, head } = view.state.selection.main;
    const at = (index: number) => Y.createRelativePositionFromTypeIndex(text, index);
    const told = { anchor: at(anchor), head: at(head) };
    const known = state.cursor;
    const same = (end: "anchor" | "head") => known && Y.compareRelativePositions(known[end], told[end]);
    if (!same("anchor") || !same("head")) awareness.setLocalStateField("cursor", told);
  }

  const plugin = ViewPlugin.fromClass(
    class {
      decorations: DecorationSet = RangeSet.empty;
      private readonly heard: (what: Record<"added" | "updated" | "removed", number[]>) => void;

      constructor(view: EditorView) {
        this.heard = (what) => {
          const clients = [...what.added, ...what.updated, ...what.removed];
          if (clients.some((client) => client !== awareness.clientID)) view.dispatch({ annotations: moved.of(true) });
        };
        awareness.on("change", this.heard);
        this.decorations = drawn(view);
      }

      update(update: ViewUpdate): void {
        const told = update.transactions.some((each) => each.annotation(moved));
        if (update.docChanged || told) this.decorations = drawn(update.view);
        if (update.docChanged || update.selectionSet || update.focusChanged) tell(update.view);
      }

      destroy(): void {
        awareness.off("change", this.heard);
      }
    },
    { decorations: (value) => value.decorations },
  );
  return plugin;
}
