"""What people read, from numbers alone: this folder knows no risk and no data.

A `Message` carries a code, numbers and its sentence, which is made where it is found. Here stand what several folders
say: how numbers, counts and nouns are written (`sentences`), the decision and the promise (`decision`), advice.
"""
