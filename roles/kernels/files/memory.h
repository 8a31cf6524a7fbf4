/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory whose pages lie where they were asked for: page size, NUMA nodes, first touch.
 */
#ifndef CHAOSITY_MEMORY_H
#define CHAOSITY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpus.h"

enum page_kind { PAGES_BASE, PAGES_THP, PAGES_2M, PAGES_1G };

/* Refuses what is none of base, thp, 2M, 1G. */
enum page_kind parse_page_kind(const char *option, const char *text);
const char *page_kind_name(enum page_kind kind);
size_t page_bytes_of(enum page_kind pages); /* refuses transparent ones that the kernel lacks */

struct placement {
    enum page_kind pages;
    struct index_list nodes; /* count 0: not bound, a page is where its first touch was */
    bool interleave;         /* spread page by page over the nodes, instead of filling them */
};

const char *policy_name(const struct placement *placement); /* default, bind or interleave */

struct mapping {
    char *start;
    size_t bytes;      /* a multiple of page_bytes, maybe more than was asked for */
    size_t page_bytes; /* 4 KiB, 2 MiB, ... : what a page has if the kernel gives what was asked */
    enum page_kind pages;
};

/* Reserves memory and sets page size and policy, before any page exists, and reads the policy back.
 * Refuses what the machine cannot hold or place. Touches nothing: that is for the threads. */
struct mapping map_memory(size_t bytes, struct placement placement);

/* Makes the pages of a piece exist (zeroed) with one call instead of a fault a page. Only for base
 * pages, whose faults are what setting up takes; does nothing for others or on Linux before 5.14,
 * where the caller's first touch does it. */
void populate(const struct mapping *mapping, char *start, size_t bytes);

/* How many bytes of the mapping lie in huge pages now that all of it was touched. Refuses when huge
 * pages were asked for and any of it lies in others: a mixture measures neither. */
uint64_t huge_page_bytes(const struct mapping *mapping);

/* Prints, as fields of the ready line and with a comma after the last, where the memory is. */
void print_placement(const struct placement *placement, const struct mapping *mapping,
                     uint64_t in_huge_pages);

#endif
