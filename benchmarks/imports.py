"""How long `import empriv` and `empriv --help` take, against `import numpy`. Run: python benchmarks/imports.py"""

from __future__ import annotations

import subprocess
import sys
import time

COMMANDS = {
    "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
    "python -c 'import empriv'": [sys.executable, "-c", "import empriv"],
    "empriv --help": [sys.executable, "-m", "empriv", "--help"],
    "python -c pass": [sys.executable, "-c", "pass"],
}


def fastest(command: list[str], repeats: int = 15) -> float:
    """Least of several wall-clock times: the one with the least of other work in it."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    times = {name: fastest(command) for name, command in COMMANDS.items()}
    floor = times["python -c 'import numpy'"]
    for name, seconds in times.items():
        print(f"{name:28} {1000 * seconds:7.1f} ms   {seconds / floor:5.2f} x import numpy")


if __name__ == "__main__":
    main()
