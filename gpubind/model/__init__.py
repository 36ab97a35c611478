"""The values that cross stages. All are frozen; sequences are tuples; absent is None.

`files`: paths and their facts. `host`: the members of inventories. `image`: the facts of an image that a plan needs.
`plan`: a request and its plan. Other rooms import these names from this package, or from its modules.

They are NamedTuples: creating such a class costs a fifth of a frozen dataclass at import (docs/decisions/0002).
"""

from gpubind.model.arch import architecture as architecture
from gpubind.model.files import *  # noqa: F403
from gpubind.model.findings import *  # noqa: F403
from gpubind.model.host import *  # noqa: F403
from gpubind.model.image import *  # noqa: F403
from gpubind.model.plan import *  # noqa: F403
from gpubind.model.vendors import *  # noqa: F403
