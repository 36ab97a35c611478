"""What Apptainer's and SingularityCE's own --nv would bind on a host, mistakes included; bypasses the planner."""

from gpubind.like.flavours import FLAVOURS
from gpubind.like.singularity import like_plan

__all__ = ["FLAVOURS", "like_plan"]
