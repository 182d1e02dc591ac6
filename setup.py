"""The one part of the build that pyproject.toml cannot state: C files that are compiled where there is a compiler."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"empriv.{name}",
            [f"src/empriv/{name.replace('.', '/')}.c"],
            extra_compile_args=["-O3", "-fno-math-errno"],
            optional=True,  # without a compiler, numpy does the same work
        )
        for name in ("measuring.line._laplace", "validate.bounds._ends")
    ]
)
