/* SPDX-License-Identifier: Apache-2.0
 *
 * The irregular program: a sparse matrix times a vector, repeatedly, with rows whose lengths follow
 * a power law. Tasks with the same number of rows differ in work by orders of magnitude, so only
 * stealing keeps the cores busy, and loads are scattered over the vector. (A graph search would be
 * as irregular, but its amount of work depends on the start.) Whole numbers modulo 2^64 make
 * the result exact.
 *
 * Teams have rows that together hold their share of the entries. Each team has a copy of the
 * vector, which it rebuilds in each run from the results of all teams in the run before.
 */
#include <algorithm>
#include <cmath>
#include <tbb/parallel_for.h>

#include "tasks/task_program_interface.hpp"

namespace {

struct entry {
    uint32_t column, value;
};
using number = uint64_t;

/* A Pareto distribution with exponent 1.5 has a mean of three times its minimum and no finite
 * variance. */
const double least_entries = 11, exponent = 1.5;
/* The longest row has at most 1/most_share of the entries, as many as eight usual tasks. */
const size_t most_share = 256;
/* A task has 1/task_share of all rows. So at any size it has about eight times as many loads as the
 * vector has blocks, and counts as reading every block of the vector. */
const size_t task_share = 2048;
const size_t copy_numbers = 8192; /* 64 KiB */

size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

class spmv : public task_program {
  public:
    explicit spmv(const program_context &where)
        : task_program(where), begin_{0}, parts_((size_t)arenas.count()) {
        const size_t most = where.bytes / sizeof(entry) / most_share;
        for (size_t bytes = 0; bytes < where.bytes;) {
            const double chance = (double)(mix_bits(rows()) >> 11 | 1) * 0x1p-53;
            const double length = least_entries * std::pow(chance, -1 / exponent);
            begin_.push_back(begin_.back() + (size_t)std::min(length, (double)most));
            /* the row's entries, their start, and its numbers in both vectors */
            bytes += (begin_.back() - begin_[rows() - 1]) * sizeof(entry) + 3 * sizeof(number);
        }
        if (rows() > UINT32_MAX)
            refuse("--bytes: a matrix has at most 2^32 rows, that is about 1 TiB");
        task_rows_ = std::max<size_t>(1, rows() / task_share);
        const auto entries = arenas.split_among_teams(begin_.back());
        for (size_t one : entries)
            first_.push_back(
                (size_t)(std::lower_bound(begin_.begin(), begin_.end(), one) - begin_.begin()));
    }

    size_t part_bytes(int team) const override {
        const size_t i = (size_t)team;
        return entries_bytes(i) + starts_bytes(i) + whole_pages(rows_of(i) * sizeof(number)) +
               whole_pages(rows() * sizeof(number));
    }

    void place_part(int team, char *place) override {
        const size_t i = (size_t)team;
        part &own = parts_[i];
        own.entries = reinterpret_cast<entry *>(place);
        own.starts = reinterpret_cast<uint64_t *>(place += entries_bytes(i));
        own.result = reinterpret_cast<number *>(place += starts_bytes(i));
        place += whole_pages(rows_of(i) * sizeof(number));
        own.vector = reinterpret_cast<number *>(place);
    }

    void fill(int team) override {
        const size_t i = (size_t)team;
        for_each_band(task_rows_, rows_of(i), [=](size_t from, size_t to) {
            const part &own = parts_[i];
            for (size_t row = from; row < to; row++) {
                own.starts[row] = begin_[first_[i] + row] - begin_[first_[i]];
                own.result[row] = mix_bits(first_[i] + row);
            }
            for (size_t k = begin_[first_[i] + from]; k < begin_[first_[i] + to]; k++) {
                const uint64_t random = mix_bits(k);
                own.entries[k - begin_[first_[i]]] = {(uint32_t)(random % rows()),
                                                      (uint32_t)(random >> 32)};
            }
        });
        parts_[i].starts[rows_of(i)] = begin_[first_[i + 1]] - begin_[first_[i]];
    }

    void run(int team, uint64_t) override {
        const size_t i = (size_t)team;
        for (size_t from = 0; from < parts_.size(); from++)
            for_each_band(copy_numbers, rows_of(from), [=](size_t begin, size_t end) {
                const number *source = parts_[from].result + begin;
                number *to = parts_[i].vector + first_[from] + begin;
                counter.record_access(source, (end - begin) * sizeof(number));
                counter.record_access(to, (end - begin) * sizeof(number));
                std::copy(source, source + (end - begin), to);
            });
        arenas.wait_for_all();
        for_each_band(task_rows_, rows_of(i),
                      [=](size_t begin, size_t end) { multiply(i, begin, end); });
        arenas.wait_for_all();
    }

    /* Checks each row of the last run by the vector that this run read, which is still there and
     * must be the same in every copy. */
    uint64_t count_wrong_values(uint64_t) const override {
        uint64_t wrong = 0;
        for (size_t i = 0; i < parts_.size(); i++) {
            const part &own = parts_[i];
            for (size_t row = 0; row < rows(); row++)
                wrong += own.vector[row] != parts_[0].vector[row];
            for (size_t row = 0; row < rows_of(i); row++) {
                number sum = 0;
                for (size_t k = begin_[first_[i] + row]; k < begin_[first_[i] + row + 1]; k++)
                    sum += (mix_bits(k) >> 32) * parts_[0].vector[(uint32_t)(mix_bits(k) % rows())];
                wrong += own.result[row] != sum;
            }
        }
        return wrong;
    }

  private:
    struct part {
        entry *entries;
        uint64_t *starts; /* of each row's entries, and their end */
        number *result;   /* of the team's rows */
        number *vector;   /* of all rows */
    };

    size_t rows() const { return begin_.size() - 1; }
    size_t rows_of(size_t i) const { return first_[i + 1] - first_[i]; }
    size_t entries_bytes(size_t i) const {
        return whole_pages((begin_[first_[i + 1]] - begin_[first_[i]]) * sizeof(entry));
    }
    size_t starts_bytes(size_t i) const { return whole_pages((rows_of(i) + 1) * sizeof(uint64_t)); }

    template <typename body>
    static void for_each_band(size_t grain, size_t count, const body &work) {
        tbb::parallel_for(
            tbb::blocked_range<size_t>(0, count, grain),
            [&](const tbb::blocked_range<size_t> &band) { work(band.begin(), band.end()); },
            tbb::simple_partitioner());
    }

    void multiply(size_t i, size_t begin, size_t end) const {
        const part &own = parts_[i];
        const uint64_t *starts = own.starts;
        counter.record_access(starts + begin, (end - begin + 1) * sizeof *starts);
        counter.record_access(own.entries + starts[begin],
                              (starts[end] - starts[begin]) * sizeof(entry));
        counter.record_access(own.vector, rows() * sizeof(number));
        counter.record_access(own.result + begin, (end - begin) * sizeof(number));
        for (size_t row = begin; row < end; row++) {
            number sum = 0;
            for (uint64_t k = starts[row]; k < starts[row + 1] - MUTANT; k++)
                sum += own.entries[k].value * own.vector[own.entries[k].column];
            own.result[row] = sum;
        }
    }

    std::vector<size_t> begin_; /* index of each row's first entry */
    std::vector<size_t> first_; /* first row of each team */
    std::vector<part> parts_;
    size_t task_rows_;
};

} // namespace

std::unique_ptr<task_program> new_spmv(const program_context &where) {
    return std::make_unique<spmv>(where);
}
