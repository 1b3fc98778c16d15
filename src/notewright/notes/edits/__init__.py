"""Edits as values that know the splices they make, and merging two edits of one text."""
