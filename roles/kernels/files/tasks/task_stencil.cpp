/* SPDX-License-Identifier: Apache-2.0
 *
 * A five-point stencil over a grid without borders: each cell becomes the sum of itself and its
 * four neighbours, from one array into another and back. Whole numbers modulo 2^64 make it exact:
 * every step multiplies the sum of all cells by five.
 *
 * Teams have bands of rows and read one row of each neighbour.
 */
#include <tbb/parallel_for.h>

#include "tasks/task_program.hpp"

namespace {

using cell = uint64_t;

const size_t row_cells = 512; /* 4 KiB: rows of two bands share no page */
const size_t row_bytes = row_cells * sizeof(cell);
/* Rows of a task: 64 KiB, and two more that its neighbours write. */
const size_t task_rows = 16;
const int steps = 2; /* of a run: there and back */

class stencil : public workload {
  public:
    explicit stencil(const setting &where)
        : workload(where), rows_(where.bytes / (2 * row_bytes)), first_(crew.parts(rows_)),
          row_{std::vector<cell *>(rows_), std::vector<cell *>(rows_)} {}

    size_t part_bytes(int team) const override { return 2 * array_bytes(team); }

    void lay(int team, char *part) override {
        for (size_t row = first_[(size_t)team]; row < first_[(size_t)team + 1]; row++) {
            char *place = part + (row - first_[(size_t)team]) * row_bytes;
            row_[0][row] = reinterpret_cast<cell *>(place);
            row_[1][row] = reinterpret_cast<cell *>(place + array_bytes(team));
        }
    }

    void fill(int team) override {
        each_band(team, [this](size_t begin, size_t end) {
            for (size_t row = begin; row < end; row++)
                for (size_t i = 0; i < row_cells; i++)
                    row_[0][row][i] = mixed(row * row_cells + i);
        });
    }

    void run(int team, uint64_t) override {
        for (int step = 0; step < steps; step++) {
            const int from = step % 2;
            each_band(team,
                      [=](size_t begin, size_t end) { step_band(from, begin, end - MUTANT); });
            crew.meet();
        }
    }

    /* The last step by cell, all others by the sum. */
    uint64_t wrong(uint64_t runs) const override {
        uint64_t wrong = 0, sum = 0, expected = 0;
        std::vector<cell> row(row_cells);
        for (size_t i = 0; i < rows_; i++) {
            sum_row(1, i, row.data());
            for (size_t j = 0; j < row_cells; j++) {
                wrong += row_[0][i][j] != row[j];
                sum += row_[0][i][j];
                expected += mixed(i * row_cells + j);
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

    template <typename body> void each_band(int team, const body &work) const {
        tbb::parallel_for(
            tbb::blocked_range<size_t>(first_[(size_t)team], first_[(size_t)team + 1], task_rows),
            [&](const tbb::blocked_range<size_t> &band) { work(band.begin(), band.end()); },
            tbb::simple_partitioner());
    }

    size_t above(size_t row) const { return (row + rows_ - 1) % rows_; }
    size_t below(size_t row) const { return (row + 1) % rows_; }

    void sum_row(int from, size_t row, cell *to) const {
        const cell *up = row_[from][above(row)], *down = row_[from][below(row)];
        const cell *here = row_[from][row];
        for (size_t i = 1; i + 1 < row_cells; i++)
            to[i] = up[i] + down[i] + here[i] + here[i - 1] + here[i + 1];
        const size_t last = row_cells - 1;
        to[0] = up[0] + down[0] + here[0] + here[last] + here[1];
        to[last] = up[last] + down[last] + here[last] + here[last - 1] + here[0];
    }

    void step_band(int from, size_t begin, size_t end) const {
        book.note(row_[from][above(begin)], row_bytes);
        book.note(row_[from][begin], (end - begin) * row_bytes);
        book.note(row_[from][below(end - 1)], row_bytes);
        book.note(row_[1 - from][begin], (end - begin) * row_bytes);
        for (size_t row = begin; row < end; row++)
            sum_row(from, row, row_[1 - from][row]);
    }

    size_t rows_;
    std::vector<size_t> first_;
    std::vector<cell *> row_[2];
};

} // namespace

std::unique_ptr<workload> new_stencil(const setting &where) {
    return std::make_unique<stencil>(where);
}
