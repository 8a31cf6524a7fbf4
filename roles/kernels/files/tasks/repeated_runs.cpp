/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks/repeated_runs.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

namespace {

/* The run of a program on a runtime, from set-up to the last line. */
class measurement {
  public:
    measurement(const request &asked, std::vector<team> members)
        : asked_(asked), crew_(std::move(members)),
          work_(task_programs[asked.program].make({crew_, book_, asked.bytes})) {
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
        const stretch whole = {part, 1, 0, bytes};
        fill_stretch(
            &memory_, whole,
            [](void *context, size_t from, size_t count) {
                memset(static_cast<char *>(context) + from, 0, count);
            },
            part);
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
               task_programs[asked_.program].name, runtimes[asked_.runtime],
               asked_.runtime == LOCALITY ? "parts" : data_places[interleaved() ? SPREAD : ONE_NODE],
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
        print_placement(&where, &memory_, 1, huge_page_bytes(&memory_));
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
                     task_programs[asked_.program].name, wrong);
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

} // namespace

int repeat(const request &asked, std::vector<team> members) {
    measurement one(asked, std::move(members));
    return one.run();
}
