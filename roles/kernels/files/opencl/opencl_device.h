/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that list the OpenCL devices of this host, open one device with its queues, and report
 * errors of OpenCL in one sentence.
 */
#ifndef CHAOSITY_OPENCL_DEVICE_H
#define CHAOSITY_OPENCL_DEVICE_H

#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <stdint.h>

#include "common/command_line.h"

/* Facts of the wanted device. A text that is NULL or empty allows any device. */
struct opencl_choice {
    const char *platform, *device; /* names of platform and device, without spaces at both ends */
    const char *slot;              /* PCI address as the Linux kernel writes it: 0000:41:00.0 */
    /* Number among the devices that have these names and this slot. */
    uint64_t twin;
};

/* Rows of a table of options. A device is chosen by names, because the numbers of platforms depend
 * on the loader: on the same host, the loader of a distribution and that of CUDA list platforms in
 * different orders. */
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
    cl_command_queue queue[MOST_QUEUES]; /* queues; each queue runs one command after the other */
    cl_program program;                  /* compiled kernels; NULL without source */
    char platform_name[OPENCL_NAME_BYTES], name[OPENCL_NAME_BYTES];
    cl_uint compute_units;
};

/* If `status` is an error, ends the process with the message "WHAT: OpenCL error NUMBER". */
void require_opencl(cl_int status, const char *what);

/* Prints all devices as one JSON object: the path of the loader, and a list. Facts that a driver
 * does not report are null. The list also contains the numbers of platforms and devices that this
 * loader gives. */
void print_opencl_devices(void);

/* Opens a device and compiles the kernels in `source` for it, unless `source` is NULL. The process
 * ends with an error if no device has the wanted facts, or if the device cannot compile the
 * kernels. */
struct opencl_device open_opencl_device(const struct opencl_choice *choice, const char *source);
void close_opencl_device(const struct opencl_device *device);

/* Returns the kernel with a name in the source of the device. */
cl_kernel opencl_kernel(const struct opencl_device *device, const char *name);

/* Returns a new buffer of the device. If the buffer does not fit, the process ends with an error
 * that names the buffer. */
cl_mem new_opencl_buffer(const struct opencl_device *device, cl_mem_flags flags, size_t bytes,
                         const char *what);

/* Prints fields of the ready line: the names of platform and device, and the compute units. */
void print_opencl_device(const struct opencl_device *device);

#endif
