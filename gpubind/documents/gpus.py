"""`gpubind gpus`: the GPUs of a host as a table, or as the document `gpubind.gpus/1` (data/gpus.schema.json)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from gpubind.documents.tables import Column, Row, Table, always_shown, make_table
from gpubind.documents.text import render_document
from gpubind.frozen import NamedTuple
from gpubind.model import DeviceNode, Gpu, Inventory, MigDevice
from gpubind.planner.gpus.selection import SelectedInventory

_NAME_COLUMNS = (Column("GPU"), Column("vendor"), *always_shown("model"))
_OTHER_COLUMNS = (*always_shown("UUID", "address"), Column("render node"), *always_shown("access", "chosen"))
_PARTITION = Column("partition")
"""A column that follows the model if any GPU has a partition mode."""
UNKNOWN = "-"
_YES_NO = ("no", "yes")


class ListedGpu(NamedTuple):
    """One GPU of a host, chosen or not."""

    gpu: Gpu
    """The GPU with all of its MIG devices."""
    mig: tuple[MigDevice, ...]
    """The MIG devices that are chosen."""
    nodes: tuple[DeviceNode, ...]
    """The nodes of this GPU only, without those that all GPUs share."""

    @property
    def access(self) -> Optional[str]:
        """Return which access the caller has to all of its nodes: `rw`, `r`, `w` or `none`; None if the GPU has no
        node.
        """
        if not self.nodes:
            return None
        return "".join(letter for letter in "rw" if all(letter in node.access for node in self.nodes)) or "none"

    def to_dict(self) -> dict[str, Any]:
        """Return the member of `gpus` in the document `gpubind.gpus/1`."""
        mig = [{**part._asdict(), "chosen": part in self.mig} for part in self.gpu.mig]
        nodes = [node.source for node in self.nodes]
        return {**self.gpu._asdict(), "mig": mig, "access": self.access, "nodes": nodes}


def list_gpus(inventories: Sequence[Inventory], selections: Sequence[SelectedInventory]) -> tuple[ListedGpu, ...]:
    """Return every GPU of *inventories*, marked as chosen or not by the *selections* made of them."""
    return tuple(
        ListedGpu(
            gpu._replace(mig=full_gpu.mig),
            gpu.mig if gpu.chosen else (),
            tuple(node for node in inventory.devices if node.gpu == gpu.index is not None),
        )
        for inventory, selection in zip(inventories, selections)
        for full_gpu, gpu in zip(inventory.gpus, selection.inventory.gpus)
    )


def render_gpus_json(gpus: Sequence[ListedGpu]) -> str:
    """Return the document."""
    return render_document("gpubind.gpus/1", {"gpus": [listed.to_dict() for listed in gpus]})


def gpus_table(gpus: Sequence[ListedGpu]) -> Table:
    """Return a row for each GPU, and below it one for each MIG device, which is named as in a value of `--gpus`."""
    divided = any(listed.gpu.partition for listed in gpus)
    rows: list[Row] = []

    def row(name: str, gpu: Gpu, *cells: str, mode: str = "") -> None:
        rows.append((name, gpu.vendor, *cells[:1], *((mode,) if divided else ()), *cells[1:]))

    for listed in gpus:
        gpu = listed.gpu
        name = UNKNOWN if gpu.index is None else str(gpu.index)
        fields = (gpu.model, gpu.uuid, gpu.pci, gpu.render, listed.access)
        cells = (value or UNKNOWN for value in fields)
        row(name, gpu, *cells, _YES_NO[gpu.chosen], mode=gpu.partition or UNKNOWN)
        for part in gpu.mig:
            about = ("MIG device", part.uuid or UNKNOWN, "", "", "")
            row(f"{name}:{part.gi}/{part.ci}", gpu, *about, _YES_NO[part in listed.mig])
    return make_table((*_NAME_COLUMNS, *((_PARTITION,) if divided else ()), *_OTHER_COLUMNS), rows)
