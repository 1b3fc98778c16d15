"""From a note's text to its value: blocks, running text, frontmatter, headings, tags."""
