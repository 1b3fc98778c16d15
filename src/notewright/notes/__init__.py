"""What a note is: paths, parsing, links, edits. Pure: no I/O, no await, no clock."""
