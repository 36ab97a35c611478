"""What Apptainer's and SingularityCE's own --nv would bind on a host, mistakes included; bypasses the planner."""

from gpubind.planner.like.flavours import FLAVOURS
from gpubind.planner.like.singularity import like_plan

__all__ = ["FLAVOURS", "like_plan"]
