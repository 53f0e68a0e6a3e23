"""Markers of lwp's, as functions: what this thread has executed, read at one instruction.

A marker does nothing on a processor. Under `lwp stat` it answers in registers.
"""

import ctypes
import mmap
import platform

# xor eax, eax; xor edx, edx; mov edi, 0 (instructions); the marker that reads;
# test edx, edx; jnz +7; mov rax, -1; ret
_READ = bytes.fromhex("31c0 31d2 bf00000000 0f1f804c575003 85d2 7507 48c7c0ffffffff c3")


def _function():
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        # Some systems forbid memory that can be written to and executed.
        return None
    page.write(_READ)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    function = ctypes.PYFUNCTYPE(ctypes.c_int64)(address)
    # The page lives as long as the function.
    function.page = page
    return function


_read = _function()


def instructions():
    """How many instructions this thread has executed; None where nothing is counted."""
    count = -1 if _read is None else _read()
    return None if count < 0 else count
