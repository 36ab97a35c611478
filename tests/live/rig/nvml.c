/* A stand-in for NVML, for machines without a GPU. `build nvml` compiles it; `FAKE_NVML=... enter` puts it in place.
 *
 * RIG_GPUS (2)   how many GPUs there are: number i is minor i, GPU-0000000i-..., 0000:0(i+1):00.0
 * RIG_MIG=1      the first GPU is cut in two MIG devices
 * RIG_INIT (0)   what nvmlInit answers: 9 is "driver not loaded", 18 "driver/library version mismatch"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Status; /* nvmlReturn_t */
enum { SUCCESS = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NOT_LOADED = 9, MISMATCH = 18 };
enum { GPUS = 8, MIGS = 2 };

typedef struct {
    int gpu;
    int instance; /* 0: a whole GPU */
} Device;
typedef struct { /* nvmlPciInfo_t */
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char address[32];
} Pci;

static Device whole[GPUS], slices[MIGS];

static int knob(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value && *value ? atoi(value) : otherwise;
}

static unsigned count(void) {
    int wanted = knob("RIG_GPUS", 2);
    return wanted < 0 ? 0 : wanted > GPUS ? GPUS : (unsigned)wanted;
}

static Status answer(char *to, unsigned size, const char *text) {
    if (strlen(text) >= size)
        return TOO_SMALL;
    strcpy(to, text);
    return SUCCESS;
}

Status nvmlInit_v2(void) {
    for (int i = 0; i < GPUS; i++)
        whole[i] = (Device){i, 0};
    for (int i = 0; i < MIGS; i++)
        slices[i] = (Device){0, i + 1};
    return knob("RIG_INIT", SUCCESS);
}
Status nvmlInit(void) { return nvmlInit_v2(); }
Status nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
Status nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(Status status) {
    switch (status) {
    case SUCCESS: return "Success";
    case INVALID: return "Invalid Argument";
    case UNSUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case TOO_SMALL: return "Insufficient Size";
    case NOT_LOADED: return "Driver Not Loaded";
    case MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

Status nvmlSystemGetDriverVersion(char *to, unsigned size) { return answer(to, size, "550.163.01"); }
Status nvmlSystemGetNVMLVersion(char *to, unsigned size) { return answer(to, size, "12.550.163.01"); }
Status nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return SUCCESS; }
Status nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

Status nvmlDeviceGetCount_v2(unsigned *number) { *number = count(); return SUCCESS; }
Status nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= count())
        return INVALID;
    *device = &whole[index];
    return SUCCESS;
}
Status nvmlDeviceGetUUID(Device *device, char *to, unsigned size) {
    char text[64];
    snprintf(text, sizeof text, "%s-0000000%d-0000-0000-0000-00000000000%d", device->instance ? "MIG" : "GPU",
             device->gpu, device->instance);
    return answer(to, size, text);
}
Status nvmlDeviceGetName(Device *device, char *to, unsigned size) { (void)device; return answer(to, size, "Made-up GPU"); }
Status nvmlDeviceGetMinorNumber(Device *device, unsigned *minor) { *minor = (unsigned)device->gpu; return SUCCESS; }
Status nvmlDeviceGetIndex(Device *device, unsigned *index) {
    *index = (unsigned)(device->instance ? device->instance - 1 : device->gpu);
    return SUCCESS;
}
Status nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)device->gpu + 1;
    pci->id = 0x233010de;
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->address, sizeof pci->address, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

static int cut(const Device *device) { return knob("RIG_MIG", 0) && device->gpu == 0 && !device->instance; }
Status nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *next) {
    if (!knob("RIG_MIG", 0))
        return UNSUPPORTED;
    *now = *next = (unsigned)cut(device);
    return SUCCESS;
}
Status nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *number) {
    *number = cut(device) ? MIGS : 0;
    return SUCCESS;
}
Status nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
    if (!cut(device) || index >= MIGS)
        return NOT_FOUND;
    *slice = &slices[index];
    return SUCCESS;
}
Status nvmlDeviceIsMigDeviceHandle(Device *device, unsigned *yes) { *yes = device->instance != 0; return SUCCESS; }
Status nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    *id = (unsigned)device->instance;
    return device->instance ? SUCCESS : INVALID;
}
Status nvmlDeviceGetComputeInstanceId(Device *device, unsigned *id) {
    *id = 0;
    return device->instance ? SUCCESS : INVALID;
}
