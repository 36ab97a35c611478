"""explain: why a file is in a plan or not."""

from __future__ import annotations

from gpubind.api.verb import verb
from gpubind.explanation import decisions

explain = verb(decisions.explain)
