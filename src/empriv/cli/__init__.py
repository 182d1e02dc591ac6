"""The command line: each command is a file of its name, loaded when it is run. Commands share the options, the config
file, what they read, how work runs and ends, and how it is printed."""
