/* SPDX-License-Identifier: Apache-2.0 */
#include "opencl/matrix_passes.h"

#include <stdlib.h>

#include "common/errors.h"

/* Tests compile defects that the check must find: make EXTRA=-DMUTANT=1, ... */
#ifndef MUTANT
#define MUTANT NO_MUTANT
#endif
enum { NO_MUTANT, EVERY_PASS_SHORT, ONE_PASS_SHORT, ONE_PASS_MISSING, MUTANT_PASS = 1 };

/* All values are whole numbers below 2^24, which a float represents exactly. So results are equal
 * to the last bit whether or not the device rounds between the product and the sum. The sums rise
 * for CYCLE passes and then fall for CYCLE passes. */
#ifndef CYCLE /* tests compile the program with a shorter cycle */
#define CYCLE ((uint64_t)1 << 20)
#endif
enum { FACTORS = 3, WEIGHTS = 5, SUMS = 1000 };
_Static_assert(FACTORS * WEIGHTS * CYCLE + SUMS < 1 << 24, "a float would round the sums");

/* Number of elements of a piece that is read back; a piece has 16 MiB. */
enum { PIECE = 1 << 22 };

/* The numbers in the text are those of the enum above. `sum_1` begins with a value that no pass
 * writes. */
const char matrix_kernels[] =
    "__kernel void fill(__global float *factor, __global float *weight,\n"
    "                   __global float *sum_0, __global float *sum_1) {\n"
    "    size_t i = get_global_id(0);\n"
    "    factor[i] = 1 + i % 3;\n"
    "    weight[i] = 1 + i / 3 % 5;\n"
    "    sum_0[i] = i % 1000;\n"
    "    sum_1[i] = -1;\n"
    "}\n"
    "__kernel void multiply_add(__global const float4 *factor, __global const float4 *weight,\n"
    "                           __global const float4 *in, __global float4 *out, float sign) {\n"
    "    size_t i = get_global_id(0);\n"
    "    out[i] = sign * factor[i] * weight[i] + in[i];\n"
    "}\n";

static void set_argument(cl_kernel kernel, cl_uint number, size_t bytes, const void *value) {
    require_opencl(clSetKernelArg(kernel, number, bytes, value), "a kernel's argument");
}

static void enqueue(const struct matrices *matrices, cl_kernel kernel, size_t items) {
    cl_int status = clEnqueueNDRangeKernel(matrices->device->queue[0], kernel, 1, NULL, &items,
                                           NULL, 0, NULL, NULL);
    require_opencl(status, "a kernel cannot be started");
}

static void finish(const struct matrices *matrices) {
    require_opencl(clFinish(matrices->device->queue[0]), "the device did not finish");
}

struct matrices new_matrices(const struct opencl_device *device, size_t elements) {
    struct matrices matrices = {.device = device, .elements = elements};
    cl_mem *all[MATRICES] = {&matrices.factor, &matrices.weight, &matrices.sum[0],
                             &matrices.sum[1]};
    cl_kernel fill = opencl_kernel(device, "fill");
    for (cl_uint i = 0; i < MATRICES; i++) {
        *all[i] =
            new_opencl_buffer(device, CL_MEM_READ_WRITE, elements * sizeof(float), "a matrix");
        set_argument(fill, i, sizeof(cl_mem), all[i]);
    }
    enqueue(&matrices, fill, elements);
    finish(&matrices);
    clReleaseKernel(fill);
    matrices.multiply_add = opencl_kernel(device, "multiply_add");
    set_argument(matrices.multiply_add, 0, sizeof(cl_mem), &matrices.factor);
    set_argument(matrices.multiply_add, 1, sizeof(cl_mem), &matrices.weight);
    matrices.readback = calloc(PIECE, sizeof(float));
    if (matrices.readback == NULL)
        refuse("no memory to read the results back");
    return matrices;
}

void free_matrices(const struct matrices *matrices) {
    free(matrices->readback);
    clReleaseKernel(matrices->multiply_add);
    clReleaseMemObject(matrices->factor);
    clReleaseMemObject(matrices->weight);
    clReleaseMemObject(matrices->sum[0]);
    clReleaseMemObject(matrices->sum[1]);
}

uint64_t bytes_per_pass(const struct matrices *matrices) {
    return (uint64_t)MATRICES * sizeof(float) * matrices->elements;
}

void run_passes(struct matrices *matrices, uint64_t count) {
    for (uint64_t end = matrices->passes + count; matrices->passes < end; matrices->passes++) {
        uint64_t pass = matrices->passes;
        cl_float sign = pass % (2 * CYCLE) < CYCLE ? 1 : -1;
        size_t items = matrices->elements / VECTOR;
        if (MUTANT == EVERY_PASS_SHORT || (MUTANT == ONE_PASS_SHORT && pass == MUTANT_PASS))
            items--;
        set_argument(matrices->multiply_add, 2, sizeof(cl_mem), &matrices->sum[pass % 2]);
        set_argument(matrices->multiply_add, 3, sizeof(cl_mem), &matrices->sum[(pass + 1) % 2]);
        set_argument(matrices->multiply_add, 4, sizeof sign, &sign);
        if (MUTANT != ONE_PASS_MISSING || pass != MUTANT_PASS)
            enqueue(matrices, matrices->multiply_add, items);
    }
    finish(matrices);
}

/* Returns how often factor * weight was added in a number of passes, minus how often it was
 * subtracted. */
static uint64_t times_added(uint64_t passes) {
    uint64_t within = passes % (2 * CYCLE);
    return within < CYCLE ? within : 2 * CYCLE - within;
}

static uint64_t wrong_after(const struct matrices *matrices, uint64_t passes) {
    uint64_t wrong = 0, times = times_added(passes);
    for (size_t from = 0, count; from < matrices->elements; from += count) {
        count = matrices->elements - from < PIECE ? matrices->elements - from : PIECE;
        cl_int status = clEnqueueReadBuffer(matrices->device->queue[0], matrices->sum[passes % 2],
                                            CL_TRUE, from * sizeof(float), count * sizeof(float),
                                            matrices->readback, 0, NULL, NULL);
        require_opencl(status, "the results cannot be read back");
        for (size_t i = from; i < from + count; i++) {
            uint64_t product = (1 + i % FACTORS) * (1 + i / FACTORS % WEIGHTS);
            wrong += matrices->readback[i - from] != (float)(i % SUMS + times * product);
        }
    }
    return wrong;
}

uint64_t wrong_elements(const struct matrices *matrices) {
    /* The matrices that the last pass and the pass before it wrote are compared; the last pass read
     * the second one. */
    uint64_t wrong = wrong_after(matrices, matrices->passes);
    return matrices->passes > 0 ? wrong + wrong_after(matrices, matrices->passes - 1) : wrong;
}
