/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-tasks: how much a runtime that knows the nodes gains over one that does not, by one set
 * of task-parallel programs (document 004, there on Cilk).
 *
 * stencil.cpp, matmul.cpp, mergesort.cpp and spmv.cpp have the programs, teams.cpp the runtimes,
 * ledger.cpp the indicator of locality, this file the course of a run.
 *
 * Where a program that knows of no nodes has its data is chance: whoever touches a page first.
 * Document 004's lay on one node, written there by one thread; then the share of local accesses is
 * the share of the work that this node's cores do, 1/n only if all cores are equally fast and start
 * equally soon. Here pages lie on the nodes in turns by default, as random first touch would have
 * them on the average: any piece of data that is larger than n pages has 1/n of them on each node,
 * so whichever core steals whichever task, 1/n of its accesses are local.
 */
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "workload.hpp"

namespace {

const char help[] =
    "Usage: chaosity-tasks --program NAME --runtime NAME --cpus LIST --bytes N [OPTION]...\n"
    "Runs a task-parallel program again and again, on a runtime that knows the NUMA nodes or not.\n"
    "\n"
    "  --program NAME        stencil: five points, on a grid of whole numbers\n"
    "                        matmul: blocked matrix product\n"
    "                        mergesort: of keys that are other ones in each run\n"
    "                        spmv: irregular, sparse matrix by vector with power-law rows\n"
    "  --runtime NAME        vanilla: one arena over all CPUs, any thread steals from any other\n"
    "                        locality: one arena a node, data in a part a node, tasks stay with\n"
    "                        their data and are stolen within the node\n"
    "  --cpus LIST           one pinned thread on each of these CPUs (Linux list: 0-3,8)\n"
    "  --bytes N             size of all data, at least 1 MiB a CPU; what a team only reads of the\n"
    "                        others' (matmul, spmv) it has a copy of, which comes on top\n"
    "  --data WHERE          of vanilla: spread (default), pages lie on the nodes in turns, so that\n"
    "                        1/n of the accesses on n nodes are local whoever does them; or\n"
    "                        one_node, all pages are touched by the first CPU, as a serial\n"
    "                        initialisation does: local is what that node's cores do of the work\n"
    "  --memory-nodes LIST   nodes to keep the data on (default: the CPUs' nodes that have memory)\n"
    "  --pages KIND          base (default), thp (transparent huge pages), 2M or 1G (reserved\n"
    "                        huge pages); huge pages that are not there are an error\n"
    "  --sample-seconds S    a sample is as many whole runs as last this long (default 0.02)\n"
    "  --max-seconds S       stop measuring after this long (default 10)\n"
    "  --barrier             after the ready line, wait for a line on stdin before measuring;\n"
    "                        the end of input means stop\n"
    "  --version             print version (with a hash of the sources) and compiler\n"
    "  --help                print this\n"
    "\n"
    "SIGTERM or SIGINT ends the measurement after the run that is under way; then the result is\n"
    "checked, exactly. Prints JSON lines: one \"ready\", many \"sample\" (whole runs between two\n"
    "readings of CLOCK_MONOTONIC, in nanoseconds), one \"done\" with the share of block accesses\n"
    "whose block was on the node of the core that did it (locality; a block is a page), over all\n"
    "runs and the one before the first sample. Exit code: 0 right result, 1 wrong result, 2 could\n"
    "not do what was asked.\n"
    "\n"
    "Example: merge sort of 1 GiB by 16 CPUs with tasks kept on the nodes of their data\n"
    "  chaosity-tasks --program mergesort --runtime locality --cpus 0-15 --bytes 1073741824\n";

enum option_value { PROGRAM = 1, RUNTIME, CPUS, BYTES, DATA };

const option options[] = {
    {"program", required_argument, nullptr, PROGRAM},
    {"runtime", required_argument, nullptr, RUNTIME},
    {"cpus", required_argument, nullptr, CPUS},
    {"bytes", required_argument, nullptr, BYTES},
    {"data", required_argument, nullptr, DATA},
    COMMON_OPTIONS,
    {nullptr, 0, nullptr, 0},
};

const struct {
    const char *name;
    std::unique_ptr<workload> (*make)(const setting &where);
} workloads[] = {
    {"stencil", new_stencil},
    {"matmul", new_matmul},
    {"mergesort", new_mergesort},
    {"spmv", new_spmv},
};
const char *const runtimes[] = {"vanilla", "locality"};
const char *const places[] = {"spread", "one_node"};
enum { VANILLA, LOCALITY };
enum { SPREAD, ONE_NODE };

/* Each thread gets tasks enough to be stolen from. */
const size_t least_bytes_a_cpu = 1 << 20;

struct request {
    int program = -1, runtime = -1, data = -1;
    index_list cpus{};
    size_t bytes = 0;
    course how{};
};

template <typename names> int choice(const char *option, const names &known, const char *text) {
    const char *const *found =
        std::find_if(std::begin(known), std::end(known),
                     [=](const char *name) { return strcmp(name, text) == 0; });
    if (found == std::end(known))
        refuse("%s takes %s or %s, not '%s'", option, known[0], known[1], text);
    return (int)(found - std::begin(known));
}

int program_named(const char *text) {
    for (int i = 0; i < (int)std::size(workloads); i++)
        if (strcmp(workloads[i].name, text) == 0)
            return i;
    refuse("--program takes stencil, matmul, mergesort or spmv, not '%s'", text);
}

void set_own_option(void *to, int option, const char *text) {
    request &asked = *static_cast<request *>(to);
    switch (static_cast<option_value>(option)) {
    case PROGRAM: asked.program = program_named(text); return;
    case RUNTIME: asked.runtime = choice("--runtime", runtimes, text); return;
    case CPUS: asked.cpus = parse_index_list("--cpus", text, MOST_CPUS); return;
    case BYTES: asked.bytes = parse_count("--bytes", text, MOST_BYTES); return;
    case DATA: asked.data = choice("--data", places, text); return;
    }
}

void require_whole(const request &asked) {
    if (asked.program < 0 || asked.runtime < 0 || asked.cpus.count == 0)
        refuse("--program, --runtime, --cpus and --bytes are needed, see --help");
    const size_t least = (size_t)asked.cpus.count * least_bytes_a_cpu;
    if (asked.bytes < least)
        refuse("--bytes must be at least %zu, 1 MiB for each of %d CPUs, not %zu", least,
               asked.cpus.count, asked.bytes);
    if (asked.runtime == LOCALITY && asked.data >= 0)
        refuse("--data is of the vanilla runtime; locality has a part of the data on each node");
    require_allowed_cpus(asked.cpus);
}

bool among(const index_list &list, int index) {
    return std::find(list.index, list.index + list.count, index) != list.index + list.count;
}

/* The nodes of the CPUs as far as they have memory, unless nodes were named. */
void complete_nodes(request &asked) {
    index_list &nodes = asked.how.placement.nodes;
    if (nodes.count > 0)
        return;
    const auto node_of_cpu = nodes_of_cpus();
    const auto with_memory = nodes_with_memory();
    nodes.index = static_cast<int *>(calloc(MOST_NODES, sizeof(int)));
    if (nodes.index == nullptr)
        refuse("out of memory");
    for (int node : with_memory)
        for (int i = 0; i < asked.cpus.count; i++)
            if (node_of_cpu[(size_t)asked.cpus.index[i]] == node && !among(nodes, node))
                nodes.index[nodes.count++] = node;
    if (nodes.count == 0) /* CPUs whose memory is all elsewhere */
        nodes.index[nodes.count++] = with_memory[0];
}

std::vector<team> teams_of(const request &asked) {
    const int *cpus = asked.cpus.index, *end = cpus + asked.cpus.count;
    if (asked.runtime == VANILLA)
        return {{-1, {cpus, end}}};
    const auto node_of_cpu = nodes_of_cpus();
    std::map<int, team> by_node;
    for (const int *cpu = cpus; cpu < end; cpu++) {
        const int node = node_of_cpu[(size_t)*cpu];
        if (!among(asked.how.placement.nodes, node))
            refuse("CPU %d is on node %d, which has no memory or is none of --memory-nodes: the "
                   "locality runtime keeps data on the node of each CPU",
                   *cpu, node);
        team &own = by_node[node];
        own.node = node;
        own.cpus.push_back(*cpu);
    }
    std::vector<team> found;
    for (const auto &one : by_node)
        found.push_back(one.second);
    return found;
}

/* The run of a program on a runtime, from set-up to the last line. */
class measurement {
  public:
    explicit measurement(const request &asked)
        : asked_(asked), crew_(teams_of(asked)),
          work_(workloads[asked.program].make({crew_, book_, asked.bytes})) {
        size_t bytes = 0;
        for (int i = 0; i < crew_.count(); i++) {
            first_.push_back(bytes);
            bytes += whole_pages(work_->part_bytes(i));
        }
        first_.push_back(bytes);
        placement where = asked.how.placement;
        where.interleave = interleaved();
        memory_ = map_memory(bytes, where);
        for (int i = 0; i < crew_.count(); i++)
            work_->lay(i, memory_.start + first_[(size_t)i]);
    }

    int run() {
        crew_.run([this](int team) { lead(team); });
        return finish();
    }

  private:
    bool interleaved() const { return asked_.runtime == VANILLA && asked_.data != ONE_NODE; }

    size_t whole_pages(size_t bytes) const {
        const size_t page = page_bytes_of(asked_.how.placement.pages);
        return (bytes + page - 1) / page * page;
    }

    /* The pages of a part are made by the team's first thread. The mapping is bound to all nodes of
     * the run, of which Linux then takes the nearest to that thread (mbind(2), MPOL_BIND), and is
     * one mapping still, whose pages the runner can see as a whole. */
    void make_pages(int team) {
        char *part = memory_.start + first_[(size_t)team];
        const size_t bytes = first_[(size_t)team + 1] - first_[(size_t)team];
        populate(&memory_, part, bytes);
        for (size_t offset = 0; offset < bytes; offset += memory_.page_bytes)
            part[offset] = 0;
    }

    void require_parts_in_place() const {
        for (int i = 0; asked_.runtime == LOCALITY && i < crew_.count(); i++) {
            const size_t bytes = first_[(size_t)i + 1] - first_[(size_t)i];
            auto found = book_.pages_by_node(memory_.start + first_[(size_t)i], bytes);
            const size_t pages = bytes / memory_.page_bytes, there = found[crew_[i].node];
            if (there != pages)
                refuse("%zu of the %zu pages for node %d lie on other nodes: its memory is full",
                       pages - there, pages, crew_[i].node);
        }
    }

    void print_ready() {
        printf("{\"event\":\"ready\",\"program\":\"%s\",\"runtime\":\"%s\",\"data\":\"%s\","
               "\"bytes\":%zu,\"data_bytes\":%zu,\"block_bytes\":%zu,\"blocks_by_node\":{",
               workloads[asked_.program].name, runtimes[asked_.runtime],
               asked_.runtime == LOCALITY ? "parts" : places[interleaved() ? SPREAD : ONE_NODE],
               asked_.bytes, memory_.bytes, book_.block_bytes());
        const char *comma = "";
        for (const auto &one : book_.pages_by_node()) {
            printf("%s\"%d\":%zu", comma, one.first, one.second);
            comma = ",";
        }
        printf("},\"teams\":%d,\"threads\":[", crew_.count());
        comma = "";
        for (const pinned_thread &one : crew_.threads()) {
            printf("%s{\"cpu\":%d,\"tid\":%d}", comma, one.cpu, one.tid);
            comma = ",";
        }
        printf("],");
        placement where = asked_.how.placement;
        where.interleave = interleaved();
        print_placement(&where, &memory_, huge_page_bytes(&memory_));
        print_course(&asked_.how);
        print_build(&asked_.how, nullptr);
        require_written();
    }

    /* By the first thread of team 0, while the others sleep. */
    void await_start() {
        if (stop_requested()) {
            start_ = START_STOPPED;
            return;
        }
        print_ready();
        start_ = asked_.how.wait_for_start ? wait_for_start() : START_GO;
    }

    /* By the first thread of each team. */
    void lead(int team) {
        if (team == 0)
            deliver_stop_signals(); /* all threads are there, and have them blocked */
        make_pages(team);
        crew_.meet();
        if (team == 0) {
            book_.open(memory_);
            require_parts_in_place();
        }
        work_->fill(team);
        crew_.meet();
        work_->run(team, 0); /* fills TLBs and caches, raises clocks: in no sample */
        if (team == 0)
            await_start();
        crew_.meet();
        if (start_ != START_GO)
            return;
        const uint64_t begin = monotonic_ns();
        uint64_t last = begin;
        for (uint64_t number = 1;; number++) {
            if (team == 0)
                go_on_ = take_sample(begin, last, number - 1);
            crew_.meet();
            if (!go_on_)
                return;
            work_->run(team, number);
        }
    }

    /* Between two runs: tells of those since the last sample, and whether there is to be one more.
     * There is one at least, however long it takes: without any there were nothing to tell. */
    bool take_sample(uint64_t begin, uint64_t &last, uint64_t runs) {
        const uint64_t now = monotonic_ns();
        const bool late = (double)(now - begin) >= asked_.how.max_seconds * 1e9;
        const bool at_end = runs > 0 && (late || stop_requested());
        const bool long_enough = (double)(now - last) >= asked_.how.sample_seconds * 1e9;
        if (runs > runs_ && (long_enough || at_end)) {
            printf("{\"event\":\"sample\",\"begin_ns\":%" PRIu64 ",\"end_ns\":%" PRIu64
                   ",\"runs\":%" PRIu64 "}\n",
                   last, now, runs - runs_);
            require_written();
            runs_ = runs;
            last = now;
        }
        return !at_end;
    }

    int finish() {
        const char *stopped_by = stopped_by_start(start_);
        if (start_ != START_GO) { /* nothing ran: neither right nor wrong */
            printf("{\"event\":\"done\",\"runs\":0,\"valid\":null,\"stopped_by\":\"%s\"}\n",
                   stopped_by);
            require_written();
            return EXIT_VALID;
        }
        stopped_by = stop_requested() ? "signal" : "time";
        const accesses seen = book_.sum();
        const uint64_t wrong = work_->wrong(runs_ + 1);
        const size_t moved = book_.moved();
        printf("{\"event\":\"done\",\"runs\":%" PRIu64 ",\"valid\":%s,\"wrong\":%" PRIu64
               ",\"block_accesses\":%" PRIu64 ",\"local_block_accesses\":%" PRIu64
               ",\"locality\":%.6f,\"moved_blocks\":%zu,\"stopped_by\":\"%s\"}\n",
               runs_, wrong == 0 && moved == 0 ? "true" : "false", wrong, seen.blocks, seen.local,
               (double)seen.local / (double)seen.blocks, moved, stopped_by);
        require_written();
        if (wrong > 0)
            complain("%s computed %" PRIu64 " wrong values; the numbers must not be used",
                     workloads[asked_.program].name, wrong);
        if (moved > 0)
            complain("%zu pages were moved meanwhile (is kernel.numa_balancing on?); the numbers "
                     "must not be used",
                     moved);
        return wrong == 0 && moved == 0 ? EXIT_VALID : EXIT_INVALID;
    }

    const request &asked_;
    ledger book_;
    teams crew_;
    std::unique_ptr<workload> work_;
    mapping memory_{};
    std::vector<size_t> first_; /* where the parts begin */
    start start_ = START_STOPPED;
    bool go_on_ = false;
    uint64_t runs_ = 0; /* that samples tell of */
};

const program this_program = {
    "chaosity-tasks", help, nullptr, options, set_own_option,
};

} // namespace

int main(int argc, char *argv[]) {
    request asked;
    asked.how.sample_seconds = 0.02;
    asked.how.max_seconds = 10;
    begin_program(argc, argv, &this_program, &asked.how, &asked);
    require_whole(asked);
    complete_nodes(asked);
    measurement one(asked);
    const int exit_code = one.run();
    free_index_list(asked.cpus);
    free_index_list(asked.how.placement.nodes);
    return exit_code;
}
