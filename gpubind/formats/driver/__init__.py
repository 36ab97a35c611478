"""Files of drivers, CUDA, ROCm and their tools: `parse_liblist`, `parse_cdi`, `parse_icd`, `parse_devices`."""
