// Markdown as notes have it: with the properties above the text, which plain Markdown takes for a heading.
//
// `markdown()` of the same package also colours HTML, CSS and JavaScript within notes, for half as many bytes again.
import { markdownKeymap, markdownLanguage } from "@codemirror/lang-markdown";
import { Language } from "@codemirror/language";
import { Prec, type Extension } from "@codemirror/state";
import { keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { BlockParser, MarkdownParser } from "@lezer/markdown";

const MAX_INLINE_CHARS = 5_000;
const FENCE = /^---\s*$/;

const properties: BlockParser = {
  name: "Properties",
  before: "HorizontalRule",
  parse(context, line) {
    if (context.lineStart !== 0 || !FENCE.test(line.text)) return false;
    while (context.nextLine() && line.text.trim() !== "") {
      if (FENCE.test(line.text)) {
        context.nextLine();
        break;
      }
    }
    context.addElement(context.elt("Properties", 0, context.prevLineEnd()));
    return true;
  },
};

const parser = (markdownLanguage.parser as MarkdownParser).configure({
  defineNodes: [{ name: "Properties", block: true, style: tags.comment }],
  parseBlock: [properties],
});

// Brackets take the parser a time that grows with their square: 50 kB of them in one paragraph seconds, a note of 5 MB
// without an empty line half a minute. What is longer than this is text without colours.
const parseInline = parser.parseInline.bind(parser);
parser.parseInline = (text, offset) => (text.length > MAX_INLINE_CHARS ? [] : parseInline(text, offset));

export const markdown: Extension = [
  new Language(markdownLanguage.data, parser, [], "markdown"),
  Prec.high(keymap.of(markdownKeymap)),
];
