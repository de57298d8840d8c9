"""HIP's runtime library by ctypes, and nothing else. Knows no kernels and no Programs."""
