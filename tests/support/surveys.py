"""A record of the fixed survey alone, without what planning asks beside it."""

from __future__ import annotations

from typing import Optional

from gpubind.host import Host
from gpubind.host.record import Record
from gpubind.host.survey import look_around
from gpubind.host.surveyed import SurveyedHost


def survey(host: Host, description: str = "", hostname: Optional[str] = None) -> Record:
    """Return the fixed survey of *host*. *hostname* is kept only if given."""
    surveyed = SurveyedHost(host)
    look_around(surveyed)
    return surveyed.recorded(description, hostname)
