"""The GPU code in an ELF file: `parse_gpu_code`, of NVIDIA's fatbins and AMD's offload bundles, by their headers."""
