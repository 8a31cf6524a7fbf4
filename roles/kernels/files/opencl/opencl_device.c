/* SPDX-License-Identifier: Apache-2.0 */
#include "opencl/opencl_device.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/errors.h"

/* No machine has more; further devices would be left out. */
enum { MOST_DEVICES = 256, LOG_BYTES = 300 };

void require_opencl(cl_int status, const char *what) {
    if (status != CL_SUCCESS)
        refuse("%s: OpenCL error %d", what, status);
}

/* Removes white space at both ends; control characters become spaces. */
static void trim(char *text) {
    for (char *c = text; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c))
            *c = ' ';
    size_t end = strlen(text), begin = strspn(text, " ");
    while (end > begin && text[end - 1] == ' ')
        end--;
    memmove(text, text + begin, end - begin);
    text[end - begin] = '\0';
}

static cl_platform_id find_platform(uint64_t number) {
    cl_platform_id found[MOST_DEVICES];
    cl_uint count = 0;
    /* Without a platform the loader returns an error and leaves the count. */
    if (clGetPlatformIDs(MOST_DEVICES, found, &count) != CL_SUCCESS)
        count = 0;
    if (number >= count)
        refuse("--platform %" PRIu64 ": this host has %u OpenCL platforms, counted from 0", number,
               count);
    return found[number];
}

static cl_device_id find_device(cl_platform_id platform, uint64_t number) {
    cl_device_id found[MOST_DEVICES];
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MOST_DEVICES, found, &count) != CL_SUCCESS)
        count = 0;
    if (number >= count)
        refuse("--device %" PRIu64 ": the platform has %u devices, counted from 0", number, count);
    return found[number];
}

static cl_program compile(const struct opencl_device *device, const char *source) {
    cl_int status;
    cl_program program = clCreateProgramWithSource(device->context, 1, &source, NULL, &status);
    require_opencl(status, "the kernels cannot be loaded");
    if (clBuildProgram(program, 1, &device->id, "", NULL, NULL) != CL_SUCCESS) {
        char log[LOG_BYTES] = "";
        (void)clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        log[LOG_BYTES - 1] = '\0';
        trim(log);
        refuse("the device cannot compile the kernels: %s", log);
    }
    return program;
}

struct opencl_device open_opencl_device(uint64_t platform, uint64_t number, const char *source) {
    struct opencl_device device = {0};
    cl_platform_id of = find_platform(platform);
    device.id = find_device(of, number);
    cl_int status = clGetPlatformInfo(of, CL_PLATFORM_NAME, sizeof device.platform_name,
                                      device.platform_name, NULL);
    require_opencl(status, "the platform's name cannot be read");
    status = clGetDeviceInfo(device.id, CL_DEVICE_NAME, sizeof device.name, device.name, NULL);
    require_opencl(status, "the device's name cannot be read");
    trim(device.platform_name);
    trim(device.name);
    status = clGetDeviceInfo(device.id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof device.compute_units,
                             &device.compute_units, NULL);
    require_opencl(status, "the device's compute units cannot be read");
    device.context = clCreateContext(NULL, 1, &device.id, NULL, NULL, &status);
    require_opencl(status, "the device cannot be opened");
    device.queue = clCreateCommandQueue(device.context, device.id, 0, &status);
    require_opencl(status, "the device has no queue");
    device.program = compile(&device, source);
    return device;
}

void close_opencl_device(const struct opencl_device *device) {
    clReleaseProgram(device->program);
    clReleaseCommandQueue(device->queue);
    clReleaseContext(device->context);
}

cl_kernel opencl_kernel(const struct opencl_device *device, const char *name) {
    cl_int status;
    cl_kernel kernel = clCreateKernel(device->program, name, &status);
    require_opencl(status, name);
    return kernel;
}

static void print_text(const char *key, const char *text) {
    printf("\"%s\":\"", key);
    for (; *text != '\0'; text++)
        printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    printf("\",");
}

void print_opencl_device(const struct opencl_device *device) {
    print_text("platform", device->platform_name);
    print_text("device", device->name);
    printf("\"compute_units\":%u,", device->compute_units);
}
