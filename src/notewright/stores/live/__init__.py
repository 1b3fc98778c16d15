"""Live documents over a folder: the same files, and open notes as Yjs documents that several people and agents edit."""
