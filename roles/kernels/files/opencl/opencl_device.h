/* SPDX-License-Identifier: Apache-2.0
 *
 * The OpenCL devices of this host, one of them opened with its queues, and errors of OpenCL as one
 * sentence.
 */
#ifndef CHAOSITY_OPENCL_DEVICE_H
#define CHAOSITY_OPENCL_DEVICE_H

#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <stdint.h>

#include "common/command_line.h"

/* Which device is wanted. A text that is NULL or empty allows any device. */
struct opencl_choice {
    const char *platform, *device; /* names, without spaces at both ends */
    const char *slot;              /* PCI address as the kernel writes it: 0000:41:00.0 */
    uint64_t twin;                 /* number among the devices to which all this applies */
};

/* Rows of a table of options. Names are used because the numbers of platforms depend on the loader:
 * a distribution's and CUDA's, on the same host, list them in different orders. */
/* clang-format off */
#define OPENCL_OPTIONS(choice) \
    {"--platform", "NAME", "name of the device's platform (default: any)", set_text, \
     &(choice).platform}, \
    {"--device", "NAME", "name of the device (default: any)", set_text, &(choice).device}, \
    {"--slot", "ADDRESS", "PCI address of the device, such as 0000:41:00.0 (default: any)", set_text, \
     &(choice).slot}, \
    {"--twin", "N", \
     "number of the device among those that have these names and this slot (default 0: the first)", \
     set_count, &(choice).twin}
/* clang-format on */
option_setter set_text; /* const char * */

enum { OPENCL_NAME_BYTES = 1024, MOST_QUEUES = 2 };

struct opencl_device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue[MOST_QUEUES]; /* each runs one command after the other */
    cl_program program;                  /* NULL without source */
    char platform_name[OPENCL_NAME_BYTES], name[OPENCL_NAME_BYTES];
    cl_uint compute_units;
};

/* Refuses when `status` is an error: "WHAT: OpenCL error NUMBER". */
void require_opencl(cl_int status, const char *what);

/* Prints all devices as one JSON object: the path of the loader, and a list. Facts that a driver
 * does not tell are null. Platforms and devices also have their numbers, as this loader counts. */
void print_opencl_devices(void);

/* Opens a device and compiles the kernels in `source` for it, unless that is NULL. Refuses a choice
 * that no device meets, and kernels that the device cannot compile. */
struct opencl_device open_opencl_device(const struct opencl_choice *choice, const char *source);
void close_opencl_device(const struct opencl_device *device);

/* The kernel with this name in the device's source. */
cl_kernel opencl_kernel(const struct opencl_device *device, const char *name);

/* A new buffer of the device. Refuses what does not fit and names it. */
cl_mem new_opencl_buffer(const struct opencl_device *device, cl_mem_flags flags, size_t bytes,
                         const char *what);

/* Prints fields of the ready line: the names of platform and device, and the compute units. */
void print_opencl_device(const struct opencl_device *device);

#endif
