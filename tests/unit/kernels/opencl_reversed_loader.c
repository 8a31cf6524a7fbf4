/* SPDX-License-Identifier: Apache-2.0
 *
 * A second OpenCL loader, as CUDA brings one beside the distribution's: it lists the platforms in
 * the opposite order. All else comes from the first loader, with which it is linked.
 */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <dlfcn.h>

enum { MOST = 64 };

cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *to, cl_uint *count) {
    cl_platform_id found[MOST];
    cl_uint all = 0;
    cl_int (*first)(cl_uint, cl_platform_id *, cl_uint *) = dlsym(RTLD_NEXT, "clGetPlatformIDs");
    cl_int status = first(MOST, found, &all);
    for (cl_uint i = 0; to != NULL && i < all && i < room; i++)
        to[i] = found[all - 1 - i];
    if (count != NULL)
        *count = all;
    return status;
}
