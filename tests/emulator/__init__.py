"""Runs the machine code of AMD GPU code objects on a CPU, and checks what it does. See docs/emulator.md.

`code_object` reads the ELF file, `decode` and `encode` turn its instructions into the rows that the C sources in
`machine/` interpret, `build` compiles those into a library with HIP's own entry points, and `gpu` is a small way to
call it. Nothing here knows hipfire.
"""

import importlib
import sys

# Loading the tables raises Python's limit on recursion for the whole process: tests of what is nested too deep would
# depend on who ran before.
_limit = sys.getrecursionlimit()
importlib.import_module("tinygrad.renderer.amd")
sys.setrecursionlimit(_limit)
