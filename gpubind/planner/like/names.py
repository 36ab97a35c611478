"""The names in the nvliblist.conf of Apptainer 1.4 and 1.5, and of SingularityCE 4.5, in their order; for AMD those in
their rocmliblist.conf.

Used where the host has no such file of its own. Source: the list files of Apptainer 1.4.5 and 1.5.3 and of
SingularityCE 4.5.
"""

BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)

LIBRARIES = (
    "libcuda.so",
    "libEGL_installertest.so",
    "libEGL_nvidia.so",
    "libEGL.so",
    "libGLdispatch.so",
    "libGLESv1_CM_nvidia.so",
    "libGLESv1_CM.so",
    "libGLESv2_nvidia.so",
    "libGLESv2.so",
    "libGL.so",
    "libGLX_installertest.so",
    "libGLX_nvidia.so",
    "libglx.so",
    "libGLX.so",
    "libnvcuvid.so",
    "libnvidia-cbl.so",
    "libnvidia-cfg.so",
    "libnvidia-compiler.so",
    "libnvidia-eglcore.so",
    "libnvidia-egl-wayland.so",
    "libnvidia-encode.so",
    "libnvidia-fatbinaryloader.so",
    "libnvidia-fbc.so",
    "libnvidia-glcore.so",
    "libnvidia-glsi.so",
    "libnvidia-glvkspirv.so",
    "libnvidia-gpucomp.so",
    "libnvidia-gtk2.so",
    "libnvidia-gtk3.so",
    "libnvidia-ifr.so",
    "libnvidia-ml.so",
    "libnvidia-nvvm.so",
    "libnvidia-opencl.so",
    "libnvidia-opticalflow.so",
    "libnvidia-ptxjitcompiler.so",
    "libnvidia-rtcore.so",
    "libnvidia-tls.so",
    "libnvidia-wfb.so",
    "libOpenCL.so",
    "libOpenGL.so",
    "libvdpau_nvidia.so",
    "nvidia_drv.so",
    "tls_test_.so",
)

FILES = (
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/vulkan/icd.d/nvidia_layers.json",
    "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/nvidia/nvoptix.bin",
)

APPTAINER = (*BINARIES, *LIBRARIES, "libcudadebugger.so", "libnvoptix.so", *FILES)
SINGULARITY_CE = (*BINARIES, *LIBRARIES, "libnvoptix.so.1")

ROCM_BINARIES = ("rocm-smi", "rocminfo")
ROCM_LIBRARIES = (
    "libCXLActivityLogger.so",
    "libhc_am.so",
    "libmcwamp.so",
    "libmcwamp_cpu.so",
    "libmcwamp_hsa.so",
    "libdrm.so",
    "libdrm_amdgpu.so",
    "libnuma.so",
    "libpci.so",
    "librocr_debug_agent64.so",
    "libamdcomgr64.so",
    "libamdocl64.so",
    "libcltrace.so",
    "libOpenCL.so",
)
ROCM_APPTAINER = (*ROCM_BINARIES, *ROCM_LIBRARIES)
ROCM_SINGULARITY_CE = (
    *ROCM_APPTAINER,
    "libamd_comgr.so",
    "libcomgr.so",
    "libelf.so",
    "libhipblas.so",
    "libhip_hcc.so",
    "libhiprand.so",
    "libhsakmt.so",
    "libhsa-runtime64.so",
    "libmiopengemm.so",
    "libMIOpen.so",
    "librccl.so",
    "librocblas.so",
    "librocfft-device.so",
    "librocfft.so",
    "librocrand.so",
)
"""Apptainer 1.4 took the last fifteen out: the image should have them."""
