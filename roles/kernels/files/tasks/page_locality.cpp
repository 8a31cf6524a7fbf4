/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks/page_locality.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <sched.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

/* Counters of different threads must not share a cache line; see spin_barrier.h for the number. */
struct alignas(128) thread_counts {
    access_counts counts{};
};

std::mutex counters_lock;
std::vector<std::unique_ptr<thread_counts>> counters; /* they remain after their threads end */
thread_local thread_counts *own_counter = nullptr;

thread_counts &counts_of_this_thread() {
    if (own_counter == nullptr) {
        std::lock_guard<std::mutex> guard(counters_lock);
        counters.push_back(std::make_unique<thread_counts>());
        own_counter = counters.back().get();
    }
    return *own_counter;
}

const std::string node_folder = "/sys/devices/system/node/";

std::vector<int> list_in(const std::string &path, int limit) {
    std::ifstream file(path);
    std::string text;
    if (!std::getline(file, text) || text.empty())
        return {}; /* no such file, or a node without CPUs */
    index_list list = parse_index_list(path.c_str(), text.c_str(), limit);
    std::vector<int> found(list.index, list.index + list.count);
    free_index_list(list);
    return found;
}

} // namespace

std::vector<int16_t> nodes_of_cpus() {
    std::vector<int16_t> node_of_cpu(MOST_CPUS, 0);
    for (int node : list_in(node_folder + "online", MOST_NODES))
        for (int cpu : list_in(node_folder + "node" + std::to_string(node) + "/cpulist", MOST_CPUS))
            node_of_cpu[(size_t)cpu] = (int16_t)node;
    return node_of_cpu;
}

std::vector<int> nodes_with_memory() {
    std::vector<int> nodes = list_in(node_folder + "has_memory", MOST_NODES);
    return nodes.empty() ? std::vector<int>{0} : nodes;
}

/* move_pages(2) without nodes moves nothing and returns the node of each page. */
std::vector<int16_t> page_access_counter::query_page_nodes() const {
    const size_t pages = memory_.bytes / memory_.page_bytes, at_once = 4096;
    std::vector<int16_t> nodes(pages);
    std::vector<void *> address(at_once);
    std::vector<int> status(at_once);
    for (size_t first = 0; first < pages; first += at_once) {
        const size_t count = std::min(at_once, pages - first);
        for (size_t i = 0; i < count; i++)
            address[i] = memory_.start + (first + i) * memory_.page_bytes;
        if (syscall(SYS_move_pages, 0, count, address.data(), nullptr, status.data(), 0) != 0)
            refuse("the kernel does not give the nodes of pages (move_pages): %s", strerror(errno));
        for (size_t i = 0; i < count; i++) {
            if (status[i] < 0)
                refuse("the kernel does not give the node of page %zu of the data: %s", first + i,
                       strerror(-status[i]));
            nodes[first + i] = (int16_t)status[i];
        }
    }
    return nodes;
}

void page_access_counter::start(const mapping &memory) {
    memory_ = memory;
    node_of_cpu_ = nodes_of_cpus();
    node_of_page_ = query_page_nodes();
}

void page_access_counter::record_access(const void *start, size_t bytes) const {
    if (bytes == 0)
        return;
    const int16_t here = node_of_cpu_[(size_t)sched_getcpu()];
    const size_t offset = (size_t)(static_cast<const char *>(start) - memory_.start);
    const size_t first = offset / memory_.page_bytes;
    const size_t last = (offset + bytes - 1) / memory_.page_bytes;
    uint64_t local = 0;
    for (size_t page = first; page <= last; page++)
        local += node_of_page_[page] == here;
    access_counts &seen = counts_of_this_thread().counts;
    seen.blocks += last - first + 1;
    seen.local += local;
}

access_counts page_access_counter::sum() const {
    std::lock_guard<std::mutex> guard(counters_lock);
    access_counts all{};
    for (const auto &one : counters) {
        all.blocks += one->counts.blocks;
        all.local += one->counts.local;
    }
    return all;
}

size_t page_access_counter::count_moved_pages() const {
    const std::vector<int16_t> now = query_page_nodes();
    size_t moved = 0;
    for (size_t page = 0; page < now.size(); page++)
        moved += now[page] != node_of_page_[page];
    return moved;
}

std::map<int, size_t> page_access_counter::pages_by_node(const char *start, size_t bytes) const {
    const size_t first = (size_t)(start - memory_.start) / memory_.page_bytes;
    std::map<int, size_t> found;
    for (size_t page = first; page < first + bytes / memory_.page_bytes; page++)
        found[node_of_page_[page]]++;
    return found;
}

std::map<int, size_t> page_access_counter::pages_by_node() const {
    return pages_by_node(memory_.start, memory_.bytes);
}
