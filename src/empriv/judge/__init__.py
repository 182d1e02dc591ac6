"""One judge: how much an answer tells of a person, with noise and without, as an upper bound; pure functions of arrays.

`noise_kernels` is the noise and what it hides alone, `noisy_laws` both laws under it, `upper` the bound, `gate` what
refutes smoothness, `lower` the bound that makes FAIL, `cover` the largest move that is hidden and the dither, `score`
the people who touch several cells of a table.
"""
