/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks/repeated_runs.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

namespace {

/* Runs of a program on a runtime, from set-up to the last line. */
class measurement {
  public:
    measurement(const task_options &options, std::vector<team> members)
        : options_(options), arenas_(std::move(members)),
          work_(task_programs[options.program].make({arenas_, counter_, options.bytes})) {
        size_t bytes = 0;
        for (int i = 0; i < arenas_.count(); i++) {
            first_.push_back(bytes);
            bytes += whole_pages(work_->part_bytes(i));
        }
        first_.push_back(bytes);
        placement where = options.run_options.placement;
        where.interleave = interleaved();
        memory_ = map_memory(bytes, where);
        for (int i = 0; i < arenas_.count(); i++)
            work_->place_part(i, memory_.start + first_[(size_t)i]);
    }

    int run() {
        arenas_.run([this](int team) { lead(team); });
        return finish();
    }

  private:
    bool interleaved() const { return options_.runtime == VANILLA && options_.data != ONE_NODE; }

    size_t whole_pages(size_t bytes) const {
        const size_t page = page_bytes_of(options_.run_options.placement.pages);
        return (bytes + page - 1) / page * page;
    }

    /* The team's first thread creates the pages of its part. The mapping is bound to all nodes of
     * the run, of which Linux takes the nearest to that thread (mbind(2), MPOL_BIND). It stays one
     * mapping, whose pages the runner can inspect as a whole. */
    void make_pages(int team) {
        char *part = memory_.start + first_[(size_t)team];
        const size_t bytes = first_[(size_t)team + 1] - first_[(size_t)team];
        const array_slice whole = {part, 1, 0, bytes};
        fill_slice(
            &memory_, whole,
            [](void *context, size_t from, size_t count) {
                memset(static_cast<char *>(context) + from, 0, count);
            },
            part);
    }

    void require_parts_in_place() const {
        for (int i = 0; options_.runtime == LOCALITY && i < arenas_.count(); i++) {
            const size_t bytes = first_[(size_t)i + 1] - first_[(size_t)i];
            auto found = counter_.pages_by_node(memory_.start + first_[(size_t)i], bytes);
            const size_t pages = bytes / memory_.page_bytes, there = found[arenas_[i].node];
            if (there != pages)
                refuse("%zu of the %zu pages for node %d lie on other nodes: the node's memory is "
                       "full",
                       pages - there, pages, arenas_[i].node);
        }
    }

    void print_ready() {
        printf("{\"event\":\"ready\",\"program\":\"%s\",\"runtime\":\"%s\",\"data\":\"%s\","
               "\"bytes\":%zu,\"data_bytes\":%zu,\"block_bytes\":%zu,\"blocks_by_node\":{",
               task_programs[options_.program].name, runtimes[options_.runtime],
               options_.runtime == LOCALITY ? "parts"
                                            : data_places[interleaved() ? SPREAD : ONE_NODE],
               options_.bytes, memory_.bytes, counter_.block_bytes());
        const char *comma = "";
        for (const auto &one : counter_.pages_by_node()) {
            printf("%s\"%d\":%zu", comma, one.first, one.second);
            comma = ",";
        }
        printf("},\"teams\":%d,\"threads\":[", arenas_.count());
        comma = "";
        for (const pinned_thread &one : arenas_.threads()) {
            printf("%s{\"cpu\":%d,\"tid\":%d}", comma, one.cpu, one.tid);
            comma = ",";
        }
        printf("],");
        placement where = options_.run_options.placement;
        where.interleave = interleaved();
        print_placement(&where, &memory_, 1, huge_page_bytes(&memory_));
        print_run_options(&options_.run_options);
        print_build();
        require_written();
    }

    /* The first thread of team 0 calls this function while the others sleep. */
    void wait_until_started() {
        if (stop_requested()) {
            start_ = START_STOPPED;
            return;
        }
        print_ready();
        start_ = options_.run_options.wait_for_start ? wait_for_start() : START_GO;
    }

    /* The first thread of each team runs this. */
    void lead(int team) {
        if (team == 0)
            deliver_stop_signals(); /* all threads exist now and have them blocked */
        make_pages(team);
        arenas_.wait_for_all();
        if (team == 0) {
            counter_.start(memory_);
            require_parts_in_place();
        }
        work_->fill(team);
        arenas_.wait_for_all();
        work_->run(team, 0); /* fills TLBs and caches and raises clocks; not part of a sample */
        if (team == 0)
            wait_until_started();
        arenas_.wait_for_all();
        if (start_ != START_GO)
            return;
        const uint64_t begin = monotonic_ns();
        uint64_t last = begin;
        for (uint64_t number = 1;; number++) {
            if (team == 0)
                go_on_ = take_sample(begin, last, number - 1);
            arenas_.wait_for_all();
            if (!go_on_)
                return;
            work_->run(team, number);
        }
    }

    /* Called between two runs: prints a sample if it is due, and returns whether to run once more.
     * At least one run is in a sample, however long it takes. */
    bool take_sample(uint64_t begin, uint64_t &last, uint64_t runs) {
        const uint64_t now = monotonic_ns();
        const bool late = (double)(now - begin) >= options_.run_options.max_seconds * 1e9;
        const bool at_end = runs > 0 && (late || stop_requested());
        const bool long_enough = (double)(now - last) >= options_.run_options.sample_seconds * 1e9;
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
        if (start_ != START_GO) { /* nothing ran, so the result is neither right nor wrong */
            printf("{\"event\":\"done\",\"runs\":0,\"valid\":null,\"stopped_by\":\"%s\"}\n",
                   stopped_by);
            require_written();
            return EXIT_VALID;
        }
        stopped_by = stop_requested() ? "signal" : "time";
        const access_counts seen = counter_.sum();
        const uint64_t wrong = work_->count_wrong_values(runs_ + 1);
        const size_t moved = counter_.count_moved_pages();
        printf("{\"event\":\"done\",\"runs\":%" PRIu64 ",\"valid\":%s,\"wrong\":%" PRIu64
               ",\"block_accesses\":%" PRIu64 ",\"local_block_accesses\":%" PRIu64
               ",\"locality\":%.6f,\"moved_blocks\":%zu,\"stopped_by\":\"%s\"}\n",
               runs_, wrong == 0 && moved == 0 ? "true" : "false", wrong, seen.blocks, seen.local,
               (double)seen.local / (double)seen.blocks, moved, stopped_by);
        require_written();
        if (wrong > 0)
            complain("%s computed %" PRIu64 " wrong values; the numbers must not be used",
                     task_programs[options_.program].name, wrong);
        if (moved > 0)
            complain(
                "%zu pages were moved during the run (is kernel.numa_balancing on?); the numbers "
                "must not be used",
                moved);
        return wrong == 0 && moved == 0 ? EXIT_VALID : EXIT_INVALID;
    }

    const task_options &options_;
    page_access_counter counter_;
    pinned_teams arenas_;
    std::unique_ptr<task_program> work_;
    mapping memory_{};
    std::vector<size_t> first_; /* offset of each part, and the total size */
    enum start start_ = START_STOPPED;
    bool go_on_ = false;
    uint64_t runs_ = 0; /* number of runs in samples */
};

} // namespace

int run_repeatedly(const task_options &options, std::vector<team> members) {
    measurement one(options, std::move(members));
    return one.run();
}
