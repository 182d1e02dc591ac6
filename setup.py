"""The one part of the build that pyproject.toml cannot state: a C file that is compiled where there is a compiler."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "empriv.measuring._laplace",
            ["src/empriv/measuring/_laplace.c"],
            extra_compile_args=["-O3", "-fno-math-errno"],
            optional=True,  # without a compiler, numpy does the same work
        )
    ]
)
