"""Read the files of `check --expect` and `check --require`: the requirements on a node or an image."""

from __future__ import annotations

from gpubind.errors import in_file
from gpubind.formats.text.requirements import SIZE_LIMIT as POLICY_LIMIT
from gpubind.formats.text.requirements import parse_expectation, parse_policy
from gpubind.host.open import read_file
from gpubind.host.record import SIZE_LIMIT
from gpubind.model import Plan
from gpubind.model.requirements import Expectation, Policy
from gpubind.planner.expected import make_expectation
from gpubind.planner.planning import PlanQuery, plan_host


def read_expectation(path: str, query: PlanQuery) -> Expectation:
    """Return the expectation in the file *path*: a few lines of TOML, or a plan or record of a good node.

    A record is planned for the vendors and by the sources of *query*. Errors: `FormatError` (codes `bad-expectation`,
    `bad-plan`, `bad-record`, ...), `HostReadError`.
    """
    data = read_file(path, SIZE_LIMIT)
    if not data.lstrip().startswith(b"{"):
        with in_file(path):
            return parse_expectation(data)._replace(source_file=path)
    from gpubind.api.diff import parse_host_or_plan, without_job

    with in_file(path):
        good = parse_host_or_plan(path, data)
    if not isinstance(good, Plan):
        request = query.request._replace(gpus=None, like=None)
        good = plan_host(without_job(good), query._replace(request=request))
    return make_expectation(good, path)


def read_policy(path: str) -> Policy:
    """Return the policy in the file *path*. Errors: `HostReadError`, `FormatError` (code `bad-policy`)."""
    data = read_file(path, POLICY_LIMIT)
    with in_file(path):
        return parse_policy(data)._replace(source_file=path)
