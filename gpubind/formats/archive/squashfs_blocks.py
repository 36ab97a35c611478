"""Blocks of squashfs, unpacked, never to much more than was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

Unpack = Callable[[bytes, int], bytes]
"""Unpacks a block, to no more bytes than the limit. A block that holds more is an error, or unpacks to slightly more
than that. Any exception means damage."""

PACKAGES = {"lzo": "python-lzo", "lz4": "lz4", "zstd": "zstandard"}
"""The packages for compressions that Python itself cannot read."""
_DICTIONARY_LIMIT = 32 << 20
"""Bytes that unpacking xz or lzma may need; mksquashfs keeps dictionaries within a block."""
WINDOW_LIMIT = 8 << 20
"""The same for zstd."""


def unpacker(compression: str) -> Optional[Unpack]:
    """Return the function that unpacks blocks of *compression*; None for an unknown compression.

    Errors: `ImportError` if its package (`PACKAGES`) is not there.
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
        # mksquashfs gives a size and an end marker, too; liblzma before 5.2.6 takes one of them only.
        claimed = int.from_bytes(data[5:13], "little")
        unsized = data[:5] + b"\xff" * 8 + data[13:]
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=_DICTIONARY_LIMIT)
        unpacked = decompressor.decompress(unsized, limit + 1)
        if len(unpacked) <= limit and not decompressor.eof and len(unpacked) != claimed:
            raise EOFError("the block ends early")
        return unpacked

    return unpack


def _decompress_stream(decompressor: Any, data: bytes, limit: int) -> bytes:
    """Return *data* unpacked, which must be one whole stream."""
    unpacked: bytes = decompressor.decompress(data, limit + 1)
    if len(unpacked) <= limit and not decompressor.eof:
        raise EOFError("the block ends early")
    return unpacked


def _zstd() -> Unpack:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_LIMIT)

    def unpack(data: bytes, limit: int) -> bytes:
        claimed = zstandard.get_frame_parameters(data).content_size
        if claimed != zstandard.CONTENTSIZE_UNKNOWN and claimed > limit:  # it would be believed
            raise ValueError(f"a block of {claimed} bytes")
        return decompressor.decompress(data, max_output_size=limit)

    return unpack
