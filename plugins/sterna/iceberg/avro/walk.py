"""Running a program over raw Avro records: nothing is decoded but the wanted fields.

One function does it, written so that it means the same in two ways of running it: as plain Python over bytes and lists,
and compiled by numba over arrays. Compiled it is some hundred times faster, but the import of numba costs a second or
two, so a small sync never pays for it.

A program is a list of integers: operations, each followed by its operands. Jump targets are absolute. They are defined
here because numba's cache is renewed when this file changes, and only then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

# Operations that read no number of their own.
END: Final = 0  # the record is complete
FIXED: Final = 1  # size: step over that many bytes
MARK: Final = 2  # column: take down the position
JUMP: Final = 3  # target
NEXT: Final = 4  # its loop: one item of an array or map is done
# Operations that start by reading one Avro long.
LONG: Final = 5  # step over it
BYTES: Final = 6  # step over that many bytes
CAPTURE_LONG: Final = 7  # column: take down start, value, end
CAPTURE_BYTES: Final = 8  # column: take down start, start of content, end
UNION: Final = 9  # number of branches, target of each
LOOP: Final = 10  # exit: begin a block of an array or map, or leave; a block that declares its size is skipped

MAX_DEPTH: Final = 32
"""How deep arrays and maps may nest."""

NO_MISMATCH: Final = -1
"""What `walk` returns when all data fits the program."""


@functools.cache
def compiled_walk() -> Callable[..., int]:
    """Return `walk` compiled by numba; the machine keeps the result where it has a folder to keep it in."""
    import numba

    try:
        return numba.njit(cache=True, nogil=True)(walk)
    except RuntimeError:
        return numba.njit(nogil=True)(walk)


# One function with one place that reads a number: numba compiles it whole, and plain Python pays for no calls.
def walk(data: Any, code: Any, blocks: Any, remaining: Any, records: int, cells: Any) -> int:  # noqa: C901
    """Run a program over every record of some blocks.

    Args:
        data: the decompressed blocks.
        blocks: count, start and end of each block, flat.
        remaining: scratch: items left in each open array.
        records: the number of records in all blocks.
        cells: where results go, column after column.

    Returns:
        GOOD, or the position where the data stopped fitting the program.
    """
    row = 0
    # Items that take no bytes could claim any count: no honest file has more items than bytes.
    budget = len(data) + 1
    for block in range(0, len(blocks), 3):
        pos: int = blocks[block + 1]
        end = blocks[block + 2]
        for _ in range(blocks[block]):
            pc = 0
            depth = 0
            while True:
                op = code[pc]
                if op < LONG:
                    if op == NEXT:
                        remaining[depth] -= 1
                        if remaining[depth] > 0:
                            budget -= 1
                            if budget < 0:
                                return pos
                            pc = code[pc + 1] + 2
                        else:
                            depth -= 1
                            pc = code[pc + 1]
                    elif op == JUMP:
                        pc = code[pc + 1]
                    elif op == FIXED:
                        pos += code[pc + 1]
                        if pos > end:
                            return pos
                        pc += 2
                    elif op == MARK:
                        cells[code[pc + 1] * records + row] = pos
                        pc += 2
                    else:  # END
                        break
                    continue
                # The number: its lowest bit is the sign (zigzag), so that 63 bits remain and nothing overflows.
                start = pos
                if pos >= end:
                    return pos
                byte = data[pos] & 0xFF
                pos += 1
                negative = byte & 1
                value = (byte & 0x7F) >> 1
                shift = 6
                while byte > 0x7F:
                    if pos >= end or shift > 62:
                        return pos
                    byte = data[pos] & 0xFF
                    pos += 1
                    if shift == 62 and byte > 1:
                        return pos
                    value |= (byte & 0x7F) << shift
                    shift += 7
                if op == LONG:
                    pc += 1
                elif op in (BYTES, CAPTURE_BYTES):
                    if negative or value > end - pos:
                        return pos
                    if op == CAPTURE_BYTES:
                        at = code[pc + 1] * records + row
                        cells[at] = start
                        cells[at + records] = pos
                        cells[at + 2 * records] = pos + value
                        pc += 1
                    pos += value
                    pc += 1
                elif op == UNION:
                    if negative or value >= code[pc + 1]:
                        return pos
                    pc = code[pc + 2 + value]
                elif op == CAPTURE_LONG:
                    at = code[pc + 1] * records + row
                    cells[at] = start
                    cells[at + records] = -value - 1 if negative else value
                    cells[at + 2 * records] = pos
                    pc += 2
                elif value == 0 and not negative:  # LOOP: the end of the array
                    pc = code[pc + 1]
                else:  # LOOP: a block of items; a negative count comes with the block's size in bytes
                    if negative:
                        value += 1
                        size = 0
                        shift = 0
                        byte = 0x80
                        while byte > 0x7F:
                            if pos >= end or shift > 28:
                                return pos
                            byte = data[pos] & 0xFF
                            pos += 1
                            size |= (byte & 0x7F) << shift
                            shift += 7
                        if size & 1 or size >> 1 > end - pos:
                            return pos
                        pos += size >> 1
                        continue
                    depth += 1
                    remaining[depth] = value
                    budget -= 1
                    if budget < 0:
                        return pos
                    pc += 2
            row += 1
        if pos != end:
            return pos
    return NO_MISMATCH
