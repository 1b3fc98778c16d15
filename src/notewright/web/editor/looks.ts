// How the editor looks. The colours are the page's custom properties, which reach into the shadow root.
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const who = Object.fromEntries(
  Array.from({ length: 8 }, (_, shade) => [`.cm-who${shade}`, { "--who": `var(--who-${shade})` }]),
);

const theme = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--raised)", border: "1px solid var(--soft)", borderRadius: ".5rem" },
  "&.cm-focused": { outline: ".18rem solid var(--ring)", outlineOffset: ".12rem" },
  ".cm-scroller": { fontFamily: "var(--sans)", lineHeight: "1.6" },
  ".cm-content": { padding: "1.6rem 0 40vh", caretColor: "var(--ink)", minHeight: "60vh", overflowX: "clip" },
  ".cm-line": { padding: "0 1.1rem", unicodeBidi: "plaintext" },
  ".cm-code": { fontFamily: "var(--mono)", fontSize: ".92em" },
  ".cm-caret": { position: "relative", borderLeft: ".14em solid var(--who)", marginLeft: "-.07em", marginRight: "-.07em" },
  ".cm-caret::after": {
    content: "attr(data-name)",
    position: "absolute", top: "-1.15em", left: "-.14em", padding: "0 .35em", borderRadius: ".2em .2em .2em 0",
    backgroundColor: "var(--who)", color: "var(--who-ink)", font: "600 .7rem/1.4 var(--sans)", whiteSpace: "nowrap",
    maxWidth: "12em", overflow: "hidden", textOverflow: "ellipsis",
    pointerEvents: "none", userSelect: "none", zIndex: "1",
  },
  ".cm-marked": { backgroundColor: "color-mix(in srgb, var(--who) 25%, transparent)" },
  ...who,
});

const highlighting = HighlightStyle.define([
  { tag: tags.heading1, fontWeight: "650", fontSize: "1.45em" },
  { tag: tags.heading2, fontWeight: "650", fontSize: "1.2em" },
  { tag: tags.heading, fontWeight: "650" },
  { tag: tags.strong, fontWeight: "650" },
  { tag: tags.emphasis, fontStyle: "italic" },
  { tag: tags.strikethrough, textDecoration: "line-through" },
  { tag: [tags.link, tags.url], color: "var(--accent)" },
  { tag: tags.monospace, class: "cm-code" },
  { tag: tags.quote, color: "var(--soft)" },
  { tag: [tags.processingInstruction, tags.contentSeparator, tags.comment], color: "var(--soft)" },
]);

export const looks: Extension = [theme, syntaxHighlighting(highlighting)];
