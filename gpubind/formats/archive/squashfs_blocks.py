"""Unpackers for squashfs blocks, with a limit of the unpacked size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

Unpack = Callable[[bytes, int], bytes]
"""A function that unpacks a block, given a limit in bytes. For a larger block, it raises an error, or returns
slightly more than the limit. Any exception means damage.
"""

PACKAGES = {"lzo": "python-lzo", "lz4": "lz4", "zstd": "zstandard"}
"""The packages for compressions outside the standard library."""
_DICTIONARY_LIMIT = 32 << 20
"""Maximum bytes of memory for unpacking xz or lzma. mksquashfs limits dictionaries to the size of a block."""
WINDOW_LIMIT = 8 << 20
"""The same limit for zstd."""


def unpacker(compression: str) -> Optional[Unpack]:
    """Return the function that unpacks blocks of *compression*; None for an unknown compression.

    Errors: `ImportError` if its package (`PACKAGES`) is missing.
    """
    if compression == "gzip":
        import zlib

        return lambda data, limit: _decompress_stream(zlib.decompressobj(), data, limit)
    if compression == "xz":
        import lzma

        return lambda data, limit: _decompress_stream(
            lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DICTIONARY_LIMIT), data, limit
        )
    if compression == "lz4":
        import lz4.block

        return lambda data, limit: bytes(lz4.block.decompress(data, uncompressed_size=limit))
    if compression == "lzo":
        import lzo

        return lambda data, limit: bytes(lzo.decompress(data, False, limit))
    return _lzma() if compression == "lzma" else _zstd() if compression == "zstd" else None


def _lzma() -> Unpack:
    import lzma

    def unpack(data: bytes, limit: int) -> bytes:
        # mksquashfs writes both a size and an end marker; liblzma before 5.2.6 accepts only one of them.
        claimed = int.from_bytes(data[5:13], "little")
        unsized = data[:5] + b"\xff" * 8 + data[13:]
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=_DICTIONARY_LIMIT)
        unpacked = decompressor.decompress(unsized, limit + 1)
        if len(unpacked) <= limit and not decompressor.eof and len(unpacked) != claimed:
            raise EOFError("the block ends early")
        return unpacked

    return unpack


def _decompress_stream(decompressor: Any, data: bytes, limit: int) -> bytes:
    """Unpack *data*. Anything but one complete stream is an error."""
    unpacked: bytes = decompressor.decompress(data, limit + 1)
    if len(unpacked) <= limit and not decompressor.eof:
        raise EOFError("the block ends early")
    return unpacked


def _zstd() -> Unpack:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_LIMIT)

    def unpack(data: bytes, limit: int) -> bytes:
        claimed = zstandard.get_frame_parameters(data).content_size
        if claimed != zstandard.CONTENTSIZE_UNKNOWN and claimed > limit:  # zstandard would allocate that many
            raise ValueError(f"a block of {claimed} bytes")
        return decompressor.decompress(data, max_output_size=limit)

    return unpack
