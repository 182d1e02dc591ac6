"""The command line: each command is a file of its name, loaded when it is run. Shared by commands: the options and
the config file, what is read, how work runs and ends, and how it is printed."""
