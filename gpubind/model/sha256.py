"""sha256 as Python itself has it: `hashlib` loads OpenSSL, which takes longer than a plan's digest.

For short texts only. `blob/verified.py` hashes whole layers, and takes `hashlib`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # since Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

__all__ = ["sha256"]
