"""The desk in the browser, `empriv app`: the steps of an audit as pages, for those who write no code.

It has no mathematics, no words about figures and no files of its own kind: it fills in audit.toml, runs the commands of
the command line in processes of their own, and shows the pages that they write.
"""
