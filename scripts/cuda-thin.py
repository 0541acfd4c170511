#!/usr/bin/env python3
"""Keeps the device code of one GPU architecture in a CUDA library.

usage: cuda-thin.py IN OUT ARCHITECTURE        (ARCHITECTURE: 90 for sm_90)

The section .nv_fatbin of an ELF library holds containers, each with one entry per architecture. The payload of every other entry
is overwritten with zeros, so that the file compresses to a fraction; no size, offset or header changes. PTX goes too: the result
runs on that one architecture only.
"""

import struct
import sys

CONTAINER_MAGIC = 0xBA55ED50
# Container: magic u32, version u16, header size u16, size of what follows u64.
CONTAINER = struct.Struct("<IHHQ")
# Entry: kind u16, version u16, header size u32, payload size u64; the architecture is a u32 further on.
ENTRY = struct.Struct("<HHIQ")
ENTRY_ARCHITECTURE = 28
KIND_MACHINE_CODE = 2  # 1 is PTX
# ELF64: section header table at 0x28 (offset), 0x3A (entry size, count, index of the names).
SECTION = struct.Struct("<IIQQQQIIQQ")


def sections(elf):
    """Yields (name, offset, size)."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [SECTION.unpack_from(elf, table + i * entry_size) for i in range(count)]
    names = headers[names_index][4]
    for header in headers:
        start = names + header[0]
        yield elf[start : elf.index(b"\0", start)].decode(), header[4], header[5]


def thin(elf, keep):
    """Zeroes the other architectures' payloads in place; returns (bytes kept, bytes zeroed)."""
    kept = zeroed = 0
    for name, position, size in sections(elf):
        if name != ".nv_fatbin":
            continue
        section_end = position + size
        while position + CONTAINER.size <= section_end:
            magic, _, header_size, body_size = CONTAINER.unpack_from(elf, position)
            if magic != CONTAINER_MAGIC:
                position += 8  # padding: containers are aligned to 8
                continue
            entry = position + header_size
            position = entry + body_size
            while entry < position:
                kind, _, header_size, payload_size = ENTRY.unpack_from(elf, entry)
                (architecture,) = struct.unpack_from("<I", elf, entry + ENTRY_ARCHITECTURE)
                payload = entry + header_size
                if kind == KIND_MACHINE_CODE and architecture == keep:
                    kept += payload_size
                else:
                    elf[payload : payload + payload_size] = bytes(payload_size)
                    zeroed += payload_size
                entry = payload + payload_size
    return kept, zeroed


def main():
    if len(sys.argv) != 4 or not sys.argv[3].isdigit():
        sys.exit(__doc__)
    source, target, keep = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(source, "rb") as file:
        elf = bytearray(file.read())
    if elf[:5] != b"\x7fELF\x02":
        sys.exit(f"{source} is no 64-bit ELF file")
    kept, zeroed = thin(elf, keep)
    if kept == 0:
        sys.exit(f"{source} has no machine code for sm_{keep}")
    with open(target, "wb") as file:
        file.write(elf)
    print(f"sm_{keep}: kept {kept >> 20} MiB of device code, cleared {zeroed >> 20} MiB")


if __name__ == "__main__":
    main()
