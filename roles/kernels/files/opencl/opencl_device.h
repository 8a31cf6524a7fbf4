/* SPDX-License-Identifier: Apache-2.0
 *
 * An OpenCL device with its queue, and errors of OpenCL as one sentence.
 */
#ifndef CHAOSITY_OPENCL_DEVICE_H
#define CHAOSITY_OPENCL_DEVICE_H

#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <stdint.h>

struct opencl_device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue; /* runs one command after the other */
    cl_program program;
    char platform_name[256], name[256]; /* without spaces at both ends, as clinfo --raw */
    cl_uint compute_units;
};

/* Refuses when `status` is an error: "WHAT: OpenCL error NUMBER". */
void require_opencl(cl_int status, const char *what);

/* Opens a device by its number among those of its platform, both as clinfo counts them, and compiles
 * the kernels in `source` for it. Refuses a number that does not exist and kernels that the device
 * cannot compile. */
struct opencl_device open_opencl_device(uint64_t platform, uint64_t device, const char *source);
void close_opencl_device(const struct opencl_device *device);

/* The kernel with this name in the device's source. */
cl_kernel opencl_kernel(const struct opencl_device *device, const char *name);

/* Prints fields of the ready line: the names of platform and device, and the compute units. */
void print_opencl_device(const struct opencl_device *device);

#endif
