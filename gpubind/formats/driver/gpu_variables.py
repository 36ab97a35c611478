"""The environment variables that choose GPUs, by the names that their libraries and programs gave them."""

SLURM_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""A step's own list comes before that of its job."""
CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
ROCR_VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES"
HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES"
NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"

GPU_VARIABLES = (
    *SLURM_GPUS,
    CUDA_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    NVIDIA_VISIBLE_DEVICES,
)
"""The variables that list GPUs, in the order in which they are asked."""
LIBRARY_VARIABLES = (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES)
"""Those that a library in a container reads, whoever set them."""
