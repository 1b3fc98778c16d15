"""Settings: flags over NOTEWRIGHT_… variables over a file over the defaults."""
