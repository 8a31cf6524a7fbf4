/* SPDX-License-Identifier: Apache-2.0
 *
 * The software indicator of locality: of the blocks of data that tasks read or wrote, how many lay
 * on the node of the core that did it.
 *
 * A block is a page, since a page lies on one node. A task notes each block that it reads and each
 * that it writes, once for either, when it begins with it. The few words by which a merge finds
 * where to begin are not noted.
 */
#ifndef CHAOSITY_LEDGER_HPP
#define CHAOSITY_LEDGER_HPP

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tasks/c_headers.hpp"

struct accesses {
    uint64_t blocks, local;
};

class ledger {
  public:
    /* Asks the kernel where every page is; all of them must have been touched. Refuses when the
     * kernel does not tell. */
    void open(const mapping &memory);

    /* By the thread that is about to read or write these bytes. */
    void note(const void *start, size_t bytes) const;

    /* Sum over all threads, to be asked while no task runs. */
    accesses sum() const;

    /* Asks the kernel again: how many pages are elsewhere than at first. */
    size_t moved() const;

    /* How many pages of a piece, or of everything, were on which node at first. */
    std::map<int, size_t> pages_by_node(const char *start, size_t bytes) const;
    std::map<int, size_t> pages_by_node() const;

    size_t block_bytes() const { return memory_.page_bytes; }

  private:
    std::vector<int16_t> asked() const;

    mapping memory_{};
    std::vector<int16_t> node_of_page_;
    std::vector<int16_t> node_of_cpu_;
};

/* The node of each CPU, as the kernel has them; 0 for all on a kernel without NUMA. */
std::vector<int16_t> nodes_of_cpus();

/* The nodes that have memory; only node 0 on a kernel without NUMA. */
std::vector<int> nodes_with_memory();

#endif
