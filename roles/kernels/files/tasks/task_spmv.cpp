/* SPDX-License-Identifier: Apache-2.0
 *
 * The irregular program: a sparse matrix times a vector, again and again, with rows whose lengths
 * follow a power law. Tasks of as many rows differ in their work by orders of magnitude, so nothing
 * but stealing keeps the cores busy, and loads are scattered over the vector. (A search through a
 * graph would be as irregular, but how much it does hangs on where it begins.) Whole numbers modulo
 * 2^64 make it exact.
 *
 * Teams have rows that together hold their share of the entries, and each has a copy of the vector,
 * which it makes anew in each run out of what all teams computed in the run before.
 */
#include <algorithm>
#include <cmath>
#include <tbb/parallel_for.h>

#include "tasks/task_program.hpp"

namespace {

struct entry {
    uint32_t column, value;
};
using number = uint64_t;

/* Pareto's law with exponent 1.5 has a mean, of three times its least, and no variance. */
const double least_entries = 11, exponent = 1.5;
/* No row has more than this share of the entries: eight usual tasks. */
const size_t most_share = 256;
/* A task has this share of all rows, so that its loads are about eight times as many as the vector
 * has blocks, whatever the size: it reads every block of the vector, and says so. */
const size_t task_share = 2048;
const size_t copy_numbers = 8192; /* 64 KiB */

size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

class spmv : public workload {
  public:
    explicit spmv(const setting &where)
        : workload(where), begin_{0}, parts_((size_t)crew.count()) {
        const size_t most = where.bytes / sizeof(entry) / most_share;
        for (size_t bytes = 0; bytes < where.bytes;) {
            const double chance = (double)(mixed(rows()) >> 11 | 1) * 0x1p-53;
            const double length = least_entries * std::pow(chance, -1 / exponent);
            begin_.push_back(begin_.back() + (size_t)std::min(length, (double)most));
            /* its entries, where they begin, and its numbers of both vectors */
            bytes += (begin_.back() - begin_[rows() - 1]) * sizeof(entry) + 3 * sizeof(number);
        }
        if (rows() > UINT32_MAX)
            refuse("--bytes: a matrix has at most 2^32 rows, that is about 1 TiB");
        task_rows_ = std::max<size_t>(1, rows() / task_share);
        const auto entries = crew.parts(begin_.back());
        for (size_t one : entries)
            first_.push_back(
                (size_t)(std::lower_bound(begin_.begin(), begin_.end(), one) - begin_.begin()));
    }

    size_t part_bytes(int team) const override {
        const size_t i = (size_t)team;
        return entries_bytes(i) + starts_bytes(i) + whole_pages(rows_of(i) * sizeof(number)) +
               whole_pages(rows() * sizeof(number));
    }

    void lay(int team, char *place) override {
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
        each_band(task_rows_, rows_of(i), [=](size_t from, size_t to) {
            const part &own = parts_[i];
            for (size_t row = from; row < to; row++) {
                own.starts[row] = begin_[first_[i] + row] - begin_[first_[i]];
                own.result[row] = mixed(first_[i] + row);
            }
            for (size_t k = begin_[first_[i] + from]; k < begin_[first_[i] + to]; k++) {
                const uint64_t random = mixed(k);
                own.entries[k - begin_[first_[i]]] = {(uint32_t)(random % rows()),
                                                      (uint32_t)(random >> 32)};
            }
        });
        parts_[i].starts[rows_of(i)] = begin_[first_[i + 1]] - begin_[first_[i]];
    }

    void run(int team, uint64_t) override {
        const size_t i = (size_t)team;
        for (size_t from = 0; from < parts_.size(); from++)
            each_band(copy_numbers, rows_of(from), [=](size_t begin, size_t end) {
                const number *source = parts_[from].result + begin;
                number *to = parts_[i].vector + first_[from] + begin;
                book.note(source, (end - begin) * sizeof(number));
                book.note(to, (end - begin) * sizeof(number));
                std::copy(source, source + (end - begin), to);
            });
        crew.meet();
        each_band(task_rows_, rows_of(i),
                  [=](size_t begin, size_t end) { multiply(i, begin, end); });
        crew.meet();
    }

    /* The last run, by each row, from the vector that is still there and has to be the same in
     * every copy. */
    uint64_t wrong(uint64_t) const override {
        uint64_t wrong = 0;
        for (size_t i = 0; i < parts_.size(); i++) {
            const part &own = parts_[i];
            for (size_t row = 0; row < rows(); row++)
                wrong += own.vector[row] != parts_[0].vector[row];
            for (size_t row = 0; row < rows_of(i); row++) {
                number sum = 0;
                for (size_t k = begin_[first_[i] + row]; k < begin_[first_[i] + row + 1]; k++)
                    sum += (mixed(k) >> 32) * parts_[0].vector[(uint32_t)(mixed(k) % rows())];
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
    size_t starts_bytes(size_t i) const {
        return whole_pages((rows_of(i) + 1) * sizeof(uint64_t));
    }

    template <typename body>
    static void each_band(size_t grain, size_t count, const body &work) {
        tbb::parallel_for(
            tbb::blocked_range<size_t>(0, count, grain),
            [&](const tbb::blocked_range<size_t> &band) { work(band.begin(), band.end()); },
            tbb::simple_partitioner());
    }

    void multiply(size_t i, size_t begin, size_t end) const {
        const part &own = parts_[i];
        const uint64_t *starts = own.starts;
        book.note(starts + begin, (end - begin + 1) * sizeof *starts);
        book.note(own.entries + starts[begin], (starts[end] - starts[begin]) * sizeof(entry));
        book.note(own.vector, rows() * sizeof(number));
        book.note(own.result + begin, (end - begin) * sizeof(number));
        for (size_t row = begin; row < end; row++) {
            number sum = 0;
            for (uint64_t k = starts[row]; k < starts[row + 1] - MUTANT; k++)
                sum += own.entries[k].value * own.vector[own.entries[k].column];
            own.result[row] = sum;
        }
    }

    std::vector<size_t> begin_; /* where each row's entries begin among all */
    std::vector<size_t> first_; /* rows of the teams */
    std::vector<part> parts_;
    size_t task_rows_;
};

} // namespace

std::unique_ptr<workload> new_spmv(const setting &where) { return std::make_unique<spmv>(where); }
