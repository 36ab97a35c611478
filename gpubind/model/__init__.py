"""The values that cross stages. All are frozen; sequences are tuples; absent is None.

`files`: paths and their facts. `host`: what inventories have. `image`: what a plan needs to know of an image.
`plan`: the request, and the plan that answers it. Other rooms import them from here.

NamedTuples, because a class of them costs a fifth of a frozen dataclass at import (docs/decisions/0002).
"""

from gpubind.model.arch import architecture as architecture
from gpubind.model.files import *  # noqa: F403
from gpubind.model.findings import *  # noqa: F403
from gpubind.model.host import *  # noqa: F403
from gpubind.model.image import *  # noqa: F403
from gpubind.model.plan import *  # noqa: F403
from gpubind.model.vendors import *  # noqa: F403
