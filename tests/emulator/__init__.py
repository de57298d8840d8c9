"""Runs the machine code of AMD GPU code objects on a CPU, and checks what it does. See docs/emulator.md.

`code_object` reads the ELF file, `decode` and `encode` turn its instructions into the rows that the C sources in
`machine/` interpret, `build` compiles those into a library with HIP's own entry points, and `gpu` is a small way to
call it. Nothing here knows hipfire.
"""
