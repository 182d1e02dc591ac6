"""The command line: one file for each command, the options they share, and how a run ends."""
