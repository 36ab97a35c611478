"""How docker and podman get an image before they start it: their own `pull`, by the options of the user's `run`.

Sources: `docker pull --help` of 26.1.5; podman-pull(1), podman-run(1) 5.4; containers/common
`pkg/config/pull_policy.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpubind.runtimes.cmdline.reader import Options
from gpubind.runtimes.runtime import Pull

When = Literal["missing", "always", "newer", "never"]
_POLICIES: Mapping[str, Mapping[str, When]] = {
    "docker": {"": "missing", "missing": "missing", "always": "always", "never": "never"},
    "podman": {
        "": "missing",
        "missing": "missing",
        "ifmissing": "missing",
        "ifnotpresent": "missing",
        "always": "always",
        "newer": "newer",
        "ifnewer": "newer",
        "never": "never",
    },
}
_OPTIONS = {
    "docker": ("disable-content-trust", "platform", "quiet"),
    "podman": (
        *("arch", "authfile", "cert-dir", "creds", "decryption-key", "disable-content-trust", "log-level", "os"),
        *("platform", "quiet", "registries-conf", "retry", "retry-delay", "signature-policy", "tls-verify", "variant"),
    ),
}
"""Those of `run` that `pull` has, too."""
_GLOBALS = {
    "docker": ("debug", "log-level", "tls", "tlscacert", "tlscert", "tlskey", "tlsverify"),
    "podman": ("log-level", "registries-conf"),
}
"""Those before the subcommand that do not name another store."""


def pull(program: str, options: Options, own: Mapping[str, str], image: str) -> Pull:
    """Return how *program*, `docker` or `podman`, gets *image*. A policy that it does not have is its own to refuse."""
    when = _POLICIES[program].get(options.last("pull") or "", "never") if not image.startswith("-") else "never"
    before = [f"--{name}={own[name]}" for name in _GLOBALS[program] if name in own]
    given = {name.removeprefix("override-"): values for name, values in options.values.items()}
    words = [f"--{name}={value}" for name in _OPTIONS[program] for value in given.get(name, ())]
    no_more = ("--pull=never",) if when in ("always", "newer") else ()
    prints_name = program == "podman" or options.has("quiet")
    return Pull(when, (*before, "pull", *words, image), prints_name, no_more)
