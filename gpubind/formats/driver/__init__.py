"""What drivers, CUDA, ROCm and their tools write."""
