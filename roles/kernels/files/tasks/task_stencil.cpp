/* SPDX-License-Identifier: Apache-2.0
 *
 * A five-point stencil over a grid without borders: each cell becomes the sum of itself and its
 * four neighbours, from one array into another and back. Whole numbers modulo 2^64 make the
 * result exact: every step multiplies the sum of all cells by five.
 *
 * Teams have bands of rows and read one row of each neighbouring team.
 */
#include <tbb/parallel_for.h>

#include "common/vector_clones.h"
#include "tasks/task_program_interface.hpp"

namespace {

using cell = uint64_t;

const size_t row_cells = 512; /* 4 KiB, so rows of two bands share no page */
const size_t row_bytes = row_cells * sizeof(cell);
/* Rows of a task: 64 KiB, plus two rows that neighbouring tasks write. */
const size_t task_rows = 16;
const int steps = 2; /* of a run: into the other array and back */

class stencil : public task_program {
  public:
    explicit stencil(const program_context &where)
        : task_program(where), rows_(where.bytes / (2 * row_bytes)),
          first_(arenas.split_among_teams(rows_)), row_{std::vector<cell *>(rows_),
                                                        std::vector<cell *>(rows_)} {}

    size_t part_bytes(int team) const override { return 2 * array_bytes(team); }

    void place_part(int team, char *part) override {
        for (size_t row = first_[(size_t)team]; row < first_[(size_t)team + 1]; row++) {
            char *place = part + (row - first_[(size_t)team]) * row_bytes;
            row_[0][row] = reinterpret_cast<cell *>(place);
            row_[1][row] = reinterpret_cast<cell *>(place + array_bytes(team));
        }
    }

    void fill(int team) override {
        for_each_band(team, [this](size_t begin, size_t end) {
            for (size_t row = begin; row < end; row++)
                for (size_t i = 0; i < row_cells; i++)
                    row_[0][row][i] = mix_bits(row * row_cells + i);
        });
    }

    void run(int team, uint64_t) override {
        for (int step = 0; step < steps; step++) {
            const int from = step % 2;
            for_each_band(team,
                          [=](size_t begin, size_t end) { step_band(from, begin, end - MUTANT); });
            arenas.wait_for_all();
        }
    }

    /* Checks the last step cell by cell and all earlier steps by the sum. */
    uint64_t count_wrong_values(uint64_t runs) const override {
        uint64_t wrong = 0, sum = 0, expected = 0;
        std::vector<cell> row(row_cells);
        for (size_t i = 0; i < rows_; i++) {
            sum_row(1, i, row.data());
            for (size_t j = 0; j < row_cells; j++) {
                wrong += row_[0][i][j] != row[j];
                sum += row_[0][i][j];
                expected += mix_bits(i * row_cells + j);
            }
        }
        for (uint64_t step = 0; step < runs * steps; step++)
            expected *= 5;
        return wrong + (sum != expected);
    }

  private:
    size_t array_bytes(int team) const {
        return (first_[(size_t)team + 1] - first_[(size_t)team]) * row_bytes;
    }

    template <typename body> void for_each_band(int team, const body &work) const {
        tbb::parallel_for(
            tbb::blocked_range<size_t>(first_[(size_t)team], first_[(size_t)team + 1], task_rows),
            [&](const tbb::blocked_range<size_t> &band) { work(band.begin(), band.end()); },
            tbb::simple_partitioner());
    }

    size_t above(size_t row) const { return (row + rows_ - 1) % rows_; }
    size_t below(size_t row) const { return (row + 1) % rows_; }

    VECTOR_CLONES void sum_row(int from, size_t row, cell *to) const {
        const cell *up = row_[from][above(row)], *down = row_[from][below(row)];
        const cell *here = row_[from][row];
        for (size_t i = 1; i + 1 < row_cells; i++)
            to[i] = up[i] + down[i] + here[i] + here[i - 1] + here[i + 1];
        const size_t last = row_cells - 1;
        to[0] = up[0] + down[0] + here[0] + here[last] + here[1];
        to[last] = up[last] + down[last] + here[last] + here[last - 1] + here[0];
    }

    void step_band(int from, size_t begin, size_t end) const {
        counter.record_access(row_[from][above(begin)], row_bytes);
        counter.record_access(row_[from][begin], (end - begin) * row_bytes);
        counter.record_access(row_[from][below(end - 1)], row_bytes);
        counter.record_access(row_[1 - from][begin], (end - begin) * row_bytes);
        for (size_t row = begin; row < end; row++)
            sum_row(from, row, row_[1 - from][row]);
    }

    size_t rows_;
    std::vector<size_t> first_;
    std::vector<cell *> row_[2];
};

} // namespace

std::unique_ptr<task_program> new_stencil(const program_context &where) {
    return std::make_unique<stencil>(where);
}
