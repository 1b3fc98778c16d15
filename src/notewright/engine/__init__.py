"""What can be done with notes. The only room that decides."""
