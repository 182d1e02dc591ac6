"""What people read, from numbers alone: this room knows no risk and no data.

A `Message` carries a code, numbers and its sentence, which is made where it is found. Here stand what several rooms
say: how numbers are written (`sentences`), the decision (`decision`), what readers know (`what_is_known`), nouns.
"""
