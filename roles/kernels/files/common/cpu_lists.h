/* SPDX-License-Identifier: Apache-2.0
 *
 * Linux lists ("0-3,8") and the pinning of threads to processing units (PUs, which Linux calls
 * CPUs).
 */
#ifndef CHAOSITY_CPUS_H
#define CHAOSITY_CPUS_H

#include <stddef.h>

/* NR_CPUS is at most 8192 on x86-64 and 4096 on arm64, MAX_NUMNODES 1024 on both (Linux 6.18,
 * arch/.../Kconfig). */
enum { MOST_CPUS = 8192, MOST_NODES = 1024 };

struct index_list {
    int *index; /* in the order of the command line; the first CPU runs the first thread */
    int count;
};

/* Refuses (naming the option) what is no Linux list, is empty, names an index twice or one that is
 * not below `limit`. */
struct index_list parse_index_list(const char *option, const char *text, int limit);
void free_index_list(struct index_list list);

/* Writes the list as it would be typed, for error messages; cut short when it does not fit. */
void format_index_list(struct index_list list, char *text, size_t bytes);

/* Refuses a CPU that the affinity of this process leaves out (taskset, a cpuset, offline). */
void require_allowed_cpus(struct index_list cpus);

/* Pins the calling thread to one CPU and reads back from the kernel where it is: returns that CPU.
 * Refuses when the kernel did not do it. */
int pin_to_cpu(int cpu);

#endif
