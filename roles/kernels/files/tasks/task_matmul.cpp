/* SPDX-License-Identifier: Apache-2.0
 *
 * A blocked matrix product C = s A B of a tall A and a B that fits into caches, so that the data
 * can be large without a run taking hours: 2 x 128 operations for 16 bytes. Small whole numbers
 * make the result exact. The factor s differs from run to run, so an old C is not mistaken for a
 * new C.
 *
 * Teams have bands of rows of A and C. Each team has a copy of B, which no task writes.
 */
#include <tbb/parallel_for.h>

#include "common/vector_clones.h"
#include "tasks/task_program_interface.hpp"

namespace {

const size_t width = 128; /* columns of A and C, rows and columns of B: 128 KiB */
const size_t row_bytes = width * sizeof(double);
const size_t b_bytes = width * row_bytes;
const size_t task_rows = 64;
/* Rows that are computed together: each number of B is used this often after it was loaded. */
const size_t block_rows = 4;
/* Sums stay far below 2^53: 128 x 15 x 15 x 1000. */
const uint64_t entries_below = 16, most_scale = 1000;

double entry(uint64_t index) { return (double)(mix_bits(index) % entries_below); }
double b_entry(uint64_t index) { return entry(~index); }
double scale(uint64_t run) { return (double)(1 + run % most_scale); }

class matmul : public task_program {
  public:
    explicit matmul(const program_context &where)
        : task_program(where),
          first_(arenas.split_among_teams((where.bytes - b_bytes) / (2 * row_bytes))),
          a_((size_t)arenas.count()), b_(a_.size()), c_(a_.size()) {}

    size_t part_bytes(int team) const override { return 2 * rows_of(team) * row_bytes + b_bytes; }

    void place_part(int team, char *part) override {
        const size_t i = (size_t)team, bytes = rows_of(team) * row_bytes;
        a_[i] = reinterpret_cast<double *>(part);
        c_[i] = reinterpret_cast<double *>(part + bytes);
        b_[i] = reinterpret_cast<double *>(part + 2 * bytes);
    }

    void fill(int team) override {
        const size_t i = (size_t)team;
        for (size_t k = 0; k < width * width; k++)
            b_[i][k] = b_entry(k);
        for_each_band(team, [=](size_t begin, size_t end) {
            for (size_t k = begin * width; k < end * width; k++)
                a_[i][k] = entry(first_[i] * width + k);
        });
    }

    void run(int team, uint64_t number) override {
        for_each_band(team, [=](size_t begin, size_t end) {
            const size_t i = (size_t)team, bytes = (end - begin) * row_bytes;
            counter.record_access(a_[i] + begin * width, bytes);
            counter.record_access(b_[i], b_bytes);
            counter.record_access(c_[i] + begin * width, bytes);
            multiply(i, begin, end, scale(number));
        });
        arenas.wait_for_all();
    }

    /* Checks C r = s A (B r) row by row, for a vector r of different numbers. */
    uint64_t count_wrong_values(uint64_t runs) const override {
        uint64_t wrong = 0, r[width], b_times_r[width] = {0};
        for (size_t j = 0; j < width; j++)
            r[j] = mix_bits(j);
        for (size_t k = 0; k < width * width; k++)
            b_times_r[k / width] += (uint64_t)b_entry(k) * r[k % width];
        for (size_t i = 0; i < a_.size(); i++)
            for (size_t row = 0; row < rows_of((int)i); row++) {
                uint64_t got = 0, expected = 0;
                for (size_t k = 0; k < width; k++) {
                    got += (uint64_t)c_[i][row * width + k] * r[k];
                    expected += (uint64_t)entry((first_[i] + row) * width + k) * b_times_r[k];
                }
                wrong += got != expected * (uint64_t)scale(runs - 1);
            }
        return wrong;
    }

  private:
    size_t rows_of(int team) const { return first_[(size_t)team + 1] - first_[(size_t)team]; }

    /* Calls work(begin, end) in parallel for bands of rows, counted from the team's first row. */
    template <typename body> void for_each_band(int team, const body &work) const {
        tbb::parallel_for(
            tbb::blocked_range<size_t>(0, rows_of(team), task_rows),
            [&](const tbb::blocked_range<size_t> &band) { work(band.begin(), band.end()); },
            tbb::simple_partitioner());
    }

    VECTOR_CLONES void multiply(size_t i, size_t begin, size_t end, double s) const {
        for (size_t row = begin; row < end; row += block_rows) {
            const size_t rows = end - row < block_rows ? end - row : block_rows;
            double sum[block_rows][width] = {};
            for (size_t k = 0; k < width - MUTANT; k++)
                for (size_t line = 0; line < rows; line++) {
                    const double factor = a_[i][(row + line) * width + k];
                    for (size_t j = 0; j < width; j++)
                        sum[line][j] += factor * b_[i][k * width + j];
                }
            for (size_t line = 0; line < rows; line++)
                for (size_t j = 0; j < width; j++)
                    c_[i][(row + line) * width + j] = s * sum[line][j];
        }
    }

    std::vector<size_t> first_;
    std::vector<double *> a_, b_, c_;
};

} // namespace

std::unique_ptr<task_program> new_matmul(const program_context &where) {
    return std::make_unique<matmul>(where);
}
