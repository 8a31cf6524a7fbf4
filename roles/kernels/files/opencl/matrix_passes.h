/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes of a multiply-add over four matrices in the memory of an OpenCL device.
 *
 * A pass reads three matrices and writes a fourth: out = factor * weight + in. The next pass reads
 * the matrix that this pass wrote, and overwrites the matrix that this pass read. So every element
 * counts the passes, and a pass that left something out is found at the end.
 */
#ifndef CHAOSITY_MATRIX_PASSES_H
#define CHAOSITY_MATRIX_PASSES_H

#include <stddef.h>
#include <stdint.h>

#include "opencl/opencl_device.h"

enum { MATRICES = 4 };

/* The source text of the kernels, for open_opencl_device(). */
extern const char matrix_kernels[];

struct matrices {
    const struct opencl_device *device;
    size_t elements; /* number of 32-bit floats in each matrix, a multiple of VECTOR */
    cl_mem factor, weight, sum[2];
    cl_kernel multiply_add;
    uint64_t passes; /* number of passes done so far */
    float *readback; /* memory on the host, for the check */
};

/* Number of elements that a work item computes. */
enum { VECTOR = 4 };

/* Allocates the matrices and lets the device fill them. If the device has too little memory, the
 * process ends with an error. */
struct matrices new_matrices(const struct opencl_device *device, size_t elements);
void free_matrices(const struct matrices *matrices);

uint64_t bytes_per_pass(const struct matrices *matrices);

/* Runs passes one after the other and returns when the device has finished. */
void run_passes(struct matrices *matrices, uint64_t count);

/* Reads the results back and returns how many elements are wrong. */
uint64_t wrong_elements(const struct matrices *matrices);

#endif
