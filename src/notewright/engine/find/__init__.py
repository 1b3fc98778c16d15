"""Finding: search, grep, links, the graph around a note, context packs."""
