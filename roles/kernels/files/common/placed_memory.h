/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory whose pages lie where they were asked for: page size, NUMA nodes, first touch.
 */
#ifndef CHAOSITY_MEMORY_H
#define CHAOSITY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cpu_lists.h"

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

/* Rounded up to base pages: an array of so many bytes is followed by one on pages of its own. */
size_t whole_pages(size_t bytes);

/* Some elements of an array in a mapping. */
struct stretch {
    void *array;
    size_t element_bytes, from, count;
};

/* Writes `count` elements from `from` on. */
typedef void fill_function(void *context, size_t from, size_t count);

/* Makes the pages of a stretch exist and has them filled, piece by piece: whoever calls it is the
 * first to touch them. Ends early when the program is to stop. */
void fill_stretch(const struct mapping *mapping, struct stretch stretch, fill_function *fill,
                  void *context);

/* How many bytes of the mapping lie in huge pages now that all of it was touched. Refuses when huge
 * pages were asked for and any of it lies in others: a mixture measures neither. */
uint64_t huge_page_bytes(const struct mapping *mapping);

/* Prints, as fields of the ready line and with a comma after the last, where the memory is. Several
 * mappings, all with pages of one kind, are a list of addresses. */
void print_placement(const struct placement *placement, const struct mapping *mappings, int count,
                     uint64_t in_huge_pages);

#endif
