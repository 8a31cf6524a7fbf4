/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for a vendor's OpenCL driver: three GPUs in PCI slots, two of them of the same model,
 * each with its slot under another key. They can be listed but not used: opening one fails and
 * names its slot.
 */
#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl_icd.h>
#include <stdio.h>
#include <string.h>

struct _cl_platform_id {
    const cl_icd_dispatch *dispatch;
};

struct _cl_device_id {
    const cl_icd_dispatch *dispatch;
    const char *name;
    cl_uint bus;
};

enum { GPUS = 3, NV_BUS = 0x4008, NV_SLOT, NV_DOMAIN, AMD_TOPOLOGY = 0x4037, KHR_PCI = 0x410F };

static cl_icd_dispatch functions;
static struct _cl_platform_id platform = {&functions};
static struct _cl_device_id gpus[GPUS] = {{&functions, " Model \"X\"\t", 0xc1},
                                          {&functions, "Model \"X\"", 0x41},
                                          {&functions, "Model Y\xff", 0x07}};

static cl_int answer(const void *value, size_t bytes, size_t room, void *to, size_t *needed) {
    if (needed != NULL)
        *needed = bytes;
    if (to != NULL && room < bytes)
        return CL_INVALID_VALUE;
    if (to != NULL)
        memcpy(to, value, bytes);
    return CL_SUCCESS;
}

static cl_int get_platforms(cl_uint room, cl_platform_id *to, cl_uint *count) {
    if (count != NULL)
        *count = 1;
    if (to != NULL && room > 0)
        *to = &platform;
    return CL_SUCCESS;
}

static cl_int platform_info(cl_platform_id of, cl_platform_info key, size_t room, void *to,
                            size_t *needed) {
    (void)of;
    const char *text = key == CL_PLATFORM_NAME             ? "Stand-in"
                       : key == CL_PLATFORM_VENDOR         ? "Nobody"
                       : key == CL_PLATFORM_VERSION        ? "OpenCL 1.2"
                       : key == CL_PLATFORM_PROFILE        ? "FULL_PROFILE"
                       : key == CL_PLATFORM_EXTENSIONS     ? "cl_khr_icd"
                       : key == CL_PLATFORM_ICD_SUFFIX_KHR ? "NONE"
                                                           : NULL;
    return text == NULL ? CL_INVALID_VALUE : answer(text, strlen(text) + 1, room, to, needed);
}

static cl_int get_devices(cl_platform_id of, cl_device_type type, cl_uint room, cl_device_id *to,
                          cl_uint *count) {
    (void)of;
    if ((type & CL_DEVICE_TYPE_GPU) == 0)
        return CL_DEVICE_NOT_FOUND;
    if (count != NULL)
        *count = GPUS;
    for (cl_uint i = 0; to != NULL && i < GPUS && i < room; i++)
        to[i] = &gpus[i];
    return CL_SUCCESS;
}

static cl_int device_info(cl_device_id of, cl_device_info key, size_t room, void *to,
                          size_t *needed) {
    int number = (int)(of - gpus);
    cl_uint pci[4] = {1, of->bus, 0, 2}; /* domain, bus, device, function */
    unsigned char amd[24] = {1, [21] = (unsigned char)of->bus, 0, 3};
    switch (key) {
    case CL_DEVICE_NAME:
        return answer(of->name, strlen(of->name) + 1, room, to, needed);
    case CL_DEVICE_TYPE:
        return answer(&(cl_device_type){CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT},
                      sizeof(cl_device_type), room, to, needed);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
        return answer(&(cl_uint){132}, sizeof(cl_uint), room, to, needed);
    case CL_DEVICE_PLATFORM:
        return answer(&(cl_platform_id){&platform}, sizeof(cl_platform_id), room, to, needed);
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
        return answer(&(cl_bool){CL_FALSE}, sizeof(cl_bool), room, to, needed);
    case NV_BUS:
    case NV_SLOT:
    case NV_DOMAIN:
        if (number == 0)
            return answer(&(cl_uint){key == NV_BUS    ? of->bus
                                     : key == NV_SLOT ? 1 << 3
                                                      : 0},
                          sizeof(cl_uint), room, to, needed);
        return CL_INVALID_VALUE;
    case AMD_TOPOLOGY:
        return number == 1 ? answer(amd, sizeof amd, room, to, needed) : CL_INVALID_VALUE;
    case KHR_PCI:
        return number == 2 ? answer(pci, sizeof pci, room, to, needed) : CL_INVALID_VALUE;
    default:
        return CL_INVALID_VALUE;
    }
}

static cl_context
create_context(const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
               void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
               cl_int *status) {
    (void)properties, (void)count, (void)notify, (void)user;
    fprintf(stderr, "opened bus %02x\n", devices[0]->bus);
    *status = CL_DEVICE_NOT_AVAILABLE;
    return NULL;
}

static cl_icd_dispatch functions = {
    .clGetPlatformIDs = get_platforms,
    .clGetPlatformInfo = platform_info,
    .clGetDeviceIDs = get_devices,
    .clGetDeviceInfo = device_info,
    .clCreateContext = create_context,
};

void *clGetExtensionFunctionAddress(const char *name) {
    return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void *)get_platforms
           : strcmp(name, "clGetPlatformInfo") == 0    ? (void *)platform_info
                                                       : NULL;
}

cl_int clGetPlatformInfo(cl_platform_id of, cl_platform_info key, size_t room, void *to,
                         size_t *needed) {
    return platform_info(of, key, room, to, needed);
}
