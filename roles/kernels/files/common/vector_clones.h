/* SPDX-License-Identifier: Apache-2.0
 *
 * GCC compiles a function with the attribute VECTOR_CLONES for each of the instruction sets below.
 * A call runs the version for the widest instruction set of the CPU. The attribute is not used with
 * sanitizers, which are not ready when the version is chosen, and not on AArch64, for which GCC 12
 * lacks it.
 */
#ifndef CHAOSITY_VECTOR_CLONES_H
#define CHAOSITY_VECTOR_CLONES_H

#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_CLONES
#endif

#endif
