"""The frequency of this machine's time stamp counter, which translated guests see as theirs.

A guest on a busy host measures it wrongly at times: its clock then runs many times too fast, and
everything in it exceeds its limits, or so slowly that it seems to hang.
"""

import ctypes
import mmap
import time

RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
WINDOW_S = 0.05
LOOKS = 5


def khz():
    """Of several measurements that may have been interrupted, the median."""
    may = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    with mmap.mmap(-1, mmap.PAGESIZE, prot=may) as code:
        code.write(RDTSC)
        place = ctypes.c_char.from_buffer(code)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(place))
        found = sorted(measure(read) for _ in range(LOOKS))
        del place  # else the memory cannot be given back
    return found[LOOKS // 2]


def measure(read):
    begun, ticks = time.monotonic_ns(), read()
    time.sleep(WINDOW_S)
    ticks, ns = read() - ticks, time.monotonic_ns() - begun
    return round(ticks * 1e6 / ns)
