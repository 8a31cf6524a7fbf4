/* SPDX-License-Identifier: Apache-2.0
 *
 * The software measure of locality: how many of the data blocks that tasks read or wrote lay on the
 * node of the core that accessed them.
 *
 * A block is a page, since a page lies on one node. When a task begins to use a block, it records
 * once that it reads the block, and once that it writes the block. The few words that a merge reads
 * to find where to begin are not recorded.
 */
#ifndef CHAOSITY_PAGE_LOCALITY_HPP
#define CHAOSITY_PAGE_LOCALITY_HPP

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tasks/common_c_headers.hpp"

struct access_counts {
    uint64_t blocks, local;
};

class page_access_counter {
  public:
    /* Asks the kernel on which node each page lies; all pages must have been touched. Refuses when
     * the kernel does not answer. */
    void start(const mapping &memory);

    /* Counts the pages of these bytes, which the calling thread is about to read or write. */
    void record_access(const void *start, size_t bytes) const;

    /* Sum over all threads; call it while no task runs. */
    access_counts sum() const;

    /* Asks the kernel again: the number of pages that lie on another node than at start(). */
    size_t count_moved_pages() const;

    /* Number of pages by node at start(), of a piece or of everything. */
    std::map<int, size_t> pages_by_node(const char *start, size_t bytes) const;
    std::map<int, size_t> pages_by_node() const;

    size_t block_bytes() const { return memory_.page_bytes; }

  private:
    std::vector<int16_t> query_page_nodes() const;

    mapping memory_{};
    std::vector<int16_t> node_of_page_;
    std::vector<int16_t> node_of_cpu_;
};

/* The node of each CPU by the CPU's index; 0 for all on a kernel without NUMA. */
std::vector<int16_t> nodes_of_cpus();

/* The nodes that have memory; only node 0 on a kernel without NUMA. */
std::vector<int> nodes_with_memory();

#endif
