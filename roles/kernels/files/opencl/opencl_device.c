/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "opencl/opencl_device.h"

#include <ctype.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/errors.h"

/* Upper limits, which no machine reaches; platforms and devices beyond these limits are left
 * out. */
enum { MOST_DEVICES = 256, LOG_BYTES = 300, SLOT_BYTES = 48 };

/* Keys of newer versions of OpenCL and of extensions, which older headers lack: OpenCL 2.0,
 * cl_khr_device_uuid, cl_khr_pci_bus_info, cl_nv_device_attribute_query,
 * cl_amd_device_attribute_query. */
enum {
    SVM_CAPABILITIES = 0x1053,
    UUID_KHR = 0x106A,
    PCI_BUS_INFO_KHR = 0x410F,
    PCI_BUS_NV = 0x4008,
    PCI_SLOT_NV = 0x4009,
    PCI_DOMAIN_NV = 0x400A,
    TOPOLOGY_AMD = 0x4037,
};
enum { SVM_COARSE_GRAIN = 1, SVM_FINE_GRAIN = 2, SVM_FINE_GRAIN_SYSTEM = 4, UUID_BYTES = 16 };

struct listed_device {
    cl_device_id id;
    cl_uint platform_number, number; /* numbers that the loader gives the platform and the device */
    /* Number among the devices with the same names of platform and device. */
    uint64_t twin;
    char platform[OPENCL_NAME_BYTES], name[OPENCL_NAME_BYTES], slot[SLOT_BYTES];
};

static struct listed_device devices[MOST_DEVICES];
static int device_count;

void set_text(void *target, const char *option, const char *text) {
    (void)option;
    *(const char **)target = text;
}

void require_opencl(cl_int status, const char *what) {
    if (status != CL_SUCCESS)
        refuse("%s: OpenCL error %d", what, status);
}

/* Returns the bytes of the UTF-8 character at `text`; 0 if `text` begins with no UTF-8
 * character. */
static size_t utf8_length(const char *text) {
    unsigned char first = (unsigned char)*text;
    size_t length = first < 0x80   ? 1
                    : first < 0xc2 ? 0
                    : first < 0xe0 ? 2
                    : first < 0xf0 ? 3
                    : first < 0xf5 ? 4
                                   : 0;
    for (size_t i = 1; i < length; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* Removes white space at both ends. Control characters become spaces, and bytes that are not UTF-8
 * become '?', so that the text fits into JSON. */
static void trim(char *text) {
    for (char *c = text; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c) && (unsigned char)*c < 0x80)
            *c = ' ';
    for (size_t i = 0, length; text[i] != '\0'; i += length == 0 ? 1 : length)
        if ((length = utf8_length(text + i)) == 0)
            text[i] = '?';
    size_t end = strlen(text), begin = strspn(text, " ");
    while (end > begin && text[end - 1] == ' ')
        end--;
    memmove(text, text + begin, end - begin);
    text[end - begin] = '\0';
}

/* Reads a fact that has exactly `bytes` bytes; returns whether the driver reports this fact. */
static bool read_fact(cl_device_id id, cl_uint key, size_t bytes, void *to) {
    size_t got = 0;
    return clGetDeviceInfo(id, key, bytes, to, &got) == CL_SUCCESS && got == bytes;
}

static bool read_text(cl_device_id id, cl_uint key, char text[OPENCL_NAME_BYTES]) {
    text[0] = text[OPENCL_NAME_BYTES - 1] = '\0';
    if (clGetDeviceInfo(id, key, OPENCL_NAME_BYTES - 1, text, NULL) != CL_SUCCESS)
        return false;
    trim(text);
    return true;
}

/* Writes the PCI address in the form of the Linux kernel; the text is empty if the driver does not
 * report the address. */
static void read_slot(cl_device_id id, char slot[SLOT_BYTES]) {
    /* Fields of cl_khr_pci_bus_info: domain, bus, device, function. */
    cl_uint khr[4], bus, function, domain = 0;
    /* AMD's struct begins with a 32-bit type and ends with bus, device and function. */
    unsigned char amd[24];
    slot[0] = '\0';
    if (read_fact(id, PCI_BUS_INFO_KHR, sizeof khr, khr)) {
        snprintf(slot, SLOT_BYTES, "%04x:%02x:%02x.%x", khr[0], khr[1], khr[2], khr[3]);
    } else if (read_fact(id, TOPOLOGY_AMD, sizeof amd, amd) && amd[0] == 1) {
        snprintf(slot, SLOT_BYTES, "0000:%02x:%02x.%x", amd[21], amd[22], amd[23]);
    } else if (read_fact(id, PCI_BUS_NV, sizeof bus, &bus) &&
               read_fact(id, PCI_SLOT_NV, sizeof function, &function)) {
        (void)read_fact(id, PCI_DOMAIN_NV, sizeof domain, &domain);
        snprintf(slot, SLOT_BYTES, "%04x:%02x:%02x.%x", domain, bus, function >> 3, function & 7);
    }
}

static void list_platform(cl_platform_id platform, cl_uint platform_number) {
    cl_device_id found[MOST_DEVICES];
    cl_uint count = 0;
    char platform_name[OPENCL_NAME_BYTES] = "";
    if (clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof platform_name - 1, platform_name,
                          NULL) != CL_SUCCESS ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MOST_DEVICES, found, &count) != CL_SUCCESS)
        return;
    trim(platform_name);
    for (cl_uint i = 0; i < count && i < MOST_DEVICES && device_count < MOST_DEVICES; i++) {
        struct listed_device *device = &devices[device_count];
        *device =
            (struct listed_device){.id = found[i], .platform_number = platform_number, .number = i};
        memcpy(device->platform, platform_name, sizeof platform_name);
        if (!read_text(found[i], CL_DEVICE_NAME, device->name))
            continue;
        read_slot(found[i], device->slot);
        for (int other = 0; other < device_count; other++)
            device->twin += strcmp(devices[other].platform, device->platform) == 0 &&
                            strcmp(devices[other].name, device->name) == 0;
        device_count++;
    }
}

static void list_devices(void) {
    cl_platform_id found[MOST_DEVICES];
    cl_uint count = 0;
    /* The loader returns an error if it finds no platform. */
    if (clGetPlatformIDs(MOST_DEVICES, found, &count) != CL_SUCCESS)
        count = 0;
    for (cl_uint i = 0; i < count && i < MOST_DEVICES; i++)
        list_platform(found[i], i);
}

static void print_text(const char *key, const char *text) {
    printf("\"%s\":", key);
    if (text == NULL) {
        printf("null,");
        return;
    }
    printf("\"");
    for (; *text != '\0'; text++)
        printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    printf("\",");
}

static void print_text_fact(const char *key, cl_device_id id, cl_uint number) {
    char text[OPENCL_NAME_BYTES];
    print_text(key, read_text(id, number, text) ? text : NULL);
}

static const char *device_type(cl_device_id id) {
    cl_device_type type = 0;
    (void)read_fact(id, CL_DEVICE_TYPE, sizeof type, &type);
    return (type & CL_DEVICE_TYPE_CPU) != 0           ? "cpu"
           : (type & CL_DEVICE_TYPE_GPU) != 0         ? "gpu"
           : (type & CL_DEVICE_TYPE_ACCELERATOR) != 0 ? "accelerator"
                                                      : "other";
}

/* Returns the name of the finest way in which host and device share memory. */
static const char *shared_virtual_memory(cl_device_id id) {
    cl_ulong can;
    if (!read_fact(id, SVM_CAPABILITIES, sizeof can, &can))
        return NULL;
    return (can & SVM_FINE_GRAIN_SYSTEM) != 0 ? "fine_grain_system"
           : (can & SVM_FINE_GRAIN) != 0      ? "fine_grain"
           : (can & SVM_COARSE_GRAIN) != 0    ? "coarse_grain"
                                              : "none";
}

static void print_uuid(cl_device_id id) {
    unsigned char uuid[UUID_BYTES], none[UUID_BYTES] = {0};
    char text[2 * UUID_BYTES + 5] = "", *end = text;
    bool known = read_fact(id, UUID_KHR, sizeof uuid, uuid) && memcmp(uuid, none, sizeof uuid) != 0;
    for (int i = 0; known && i < UUID_BYTES; i++)
        end += sprintf(end, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    print_text("uuid", known ? text : NULL);
}

static void print_device(const struct listed_device *device) {
    cl_uint units;
    cl_ulong bytes;
    cl_bool unified;
    printf("{");
    print_text("platform", device->platform);
    print_text("device", device->name);
    printf("\"twin\":%" PRIu64 ",", device->twin);
    print_text("type", device_type(device->id));
    print_text_fact("vendor", device->id, CL_DEVICE_VENDOR);
    print_text_fact("driver", device->id, CL_DRIVER_VERSION);
    if (read_fact(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units))
        printf("\"compute_units\":%u,", units);
    else
        print_text("compute_units", NULL);
    if (read_fact(device->id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof bytes, &bytes))
        printf("\"memory_bytes\":%" PRIu64 ",", (uint64_t)bytes);
    else
        print_text("memory_bytes", NULL);
    print_text("pci", device->slot[0] != '\0' ? device->slot : NULL);
    print_uuid(device->id);
    if (read_fact(device->id, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified))
        printf("\"unified_memory\":%s,", unified ? "true" : "false");
    else
        print_text("unified_memory", NULL);
    print_text("shared_virtual_memory", shared_virtual_memory(device->id));
    printf("\"platform_number\":%u,\"device_number\":%u}", device->platform_number, device->number);
}

void print_opencl_devices(void) {
    Dl_info loader = {0};
    /* dlsym() gives the address, because the address of the function in C can be in this program
     * instead of the loader. */
    void *function = dlsym(RTLD_DEFAULT, "clGetPlatformIDs");
    list_devices();
    printf("{");
    print_text("loader",
               function != NULL && dladdr(function, &loader) != 0 ? loader.dli_fname : NULL);
    printf("\"devices\":[");
    for (int i = 0; i < device_count; i++) {
        printf(i > 0 ? ",\n" : "\n");
        print_device(&devices[i]);
    }
    printf("]}\n");
    require_written();
}

static const char *or_empty(const char *text) { return text != NULL ? text : ""; }

static bool is_wanted(const char *wanted, const char *text) {
    return *or_empty(wanted) == '\0' || strcmp(wanted, text) == 0;
}

static _Noreturn void refuse_choice(const struct opencl_choice *choice) {
    char listed[4 * OPENCL_NAME_BYTES] = "no OpenCL device", *end = listed;
    for (int i = 0; i < device_count && end - listed < 3 * OPENCL_NAME_BYTES; i++)
        end += snprintf(end, OPENCL_NAME_BYTES, "%s'%.200s' of '%.200s'%s%s", i > 0 ? "; " : "",
                        devices[i].name, devices[i].platform,
                        devices[i].slot[0] != '\0' ? " in " : "", devices[i].slot);
    refuse("--platform '%s' --device '%s' --slot '%s' --twin %" PRIu64 ": this host has %s",
           or_empty(choice->platform), or_empty(choice->device), or_empty(choice->slot),
           choice->twin, listed);
}

static const struct listed_device *find_device(const struct opencl_choice *choice) {
    list_devices();
    uint64_t passed_over = 0;
    for (int i = 0; i < device_count; i++) {
        const struct listed_device *device = &devices[i];
        if (is_wanted(choice->platform, device->platform) &&
            is_wanted(choice->device, device->name) && is_wanted(choice->slot, device->slot) &&
            passed_over++ == choice->twin)
            return device;
    }
    refuse_choice(choice);
}

static cl_program compile(const struct opencl_device *device, const char *source) {
    cl_int status;
    cl_program built = clCreateProgramWithSource(device->context, 1, &source, NULL, &status);
    require_opencl(status, "the kernels cannot be loaded");
    if (clBuildProgram(built, 1, &device->id, "", NULL, NULL) != CL_SUCCESS) {
        char log[LOG_BYTES] = "";
        (void)clGetProgramBuildInfo(built, device->id, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        log[LOG_BYTES - 1] = '\0';
        trim(log);
        refuse("the device cannot compile the kernels: %s", log);
    }
    return built;
}

struct opencl_device open_opencl_device(const struct opencl_choice *choice, const char *source) {
    struct opencl_device device = {0};
    const struct listed_device *found = find_device(choice);
    cl_int status;
    device.id = found->id;
    memcpy(device.platform_name, found->platform, sizeof found->platform);
    memcpy(device.name, found->name, sizeof found->name);
    status = clGetDeviceInfo(device.id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof device.compute_units,
                             &device.compute_units, NULL);
    require_opencl(status, "the device's compute units cannot be read");
    device.context = clCreateContext(NULL, 1, &device.id, NULL, NULL, &status);
    require_opencl(status, "the device cannot be opened");
    for (int i = 0; i < MOST_QUEUES; i++) {
        device.queue[i] = clCreateCommandQueue(device.context, device.id, 0, &status);
        require_opencl(status, "the device has no queue");
    }
    if (source != NULL)
        device.program = compile(&device, source);
    return device;
}

void close_opencl_device(const struct opencl_device *device) {
    if (device->program != NULL)
        clReleaseProgram(device->program);
    for (int i = 0; i < MOST_QUEUES; i++)
        clReleaseCommandQueue(device->queue[i]);
    clReleaseContext(device->context);
}

cl_kernel opencl_kernel(const struct opencl_device *device, const char *name) {
    cl_int status;
    cl_kernel kernel = clCreateKernel(device->program, name, &status);
    require_opencl(status, name);
    return kernel;
}

cl_mem new_opencl_buffer(const struct opencl_device *device, cl_mem_flags flags, size_t bytes,
                         const char *what) {
    cl_int status;
    cl_mem buffer = clCreateBuffer(device->context, flags, bytes, NULL, &status);
    if (status != CL_SUCCESS)
        refuse("the device has no memory for %s of %zu MiB: OpenCL error %d", what, bytes >> 20,
               status);
    return buffer;
}

void print_opencl_device(const struct opencl_device *device) {
    print_text("platform", device->platform_name);
    print_text("device", device->name);
    printf("\"compute_units\":%u,", device->compute_units);
}
