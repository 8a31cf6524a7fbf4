/* SPDX-License-Identifier: Apache-2.0
 *
 * A task-parallel program whose data are divided into one part per team. With one team it is the
 * ordinary program. With several, each team works on its own part in its own node's memory, and
 * reads from other parts only what the algorithm needs.
 */
#ifndef CHAOSITY_TASK_PROGRAM_INTERFACE_HPP
#define CHAOSITY_TASK_PROGRAM_INTERFACE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tasks/page_locality.hpp"
#include "tasks/pinned_teams.hpp"

/* Threads, counter and size that a program works with; they outlive the program. */
struct program_context {
    pinned_teams &arenas;
    const page_access_counter &counter;
    size_t bytes; /* size of all data, without the copies for further teams */
};

class task_program {
  public:
    explicit task_program(const program_context &where)
        : arenas(where.arenas), counter(where.counter) {}
    virtual ~task_program() = default;

    /* Bytes of a team's part. */
    virtual size_t part_bytes(int team) const = 0;

    /* Sets the address of a team's part, before any page of it exists. */
    virtual void place_part(int team, char *part) = 0;

    /* The first thread of each team calls these for its own part; they may wait for other teams.
     * One run is the whole computation. `number` counts runs, so that each run can have other data.
     */
    virtual void fill(int team) = 0;
    virtual void run(int team, uint64_t number) = 0;

    /* Number of wrong values after this many runs; the last run had the number `runs` - 1. */
    virtual uint64_t count_wrong_values(uint64_t runs) const = 0;

  protected:
    pinned_teams &arenas;
    const page_access_counter &counter;
};

std::unique_ptr<task_program> new_stencil(const program_context &where);
std::unique_ptr<task_program> new_matmul(const program_context &where);
std::unique_ptr<task_program> new_mergesort(const program_context &where);
std::unique_ptr<task_program> new_spmv(const program_context &where);

/* Mixes the bits of a number; different numbers give different results. (The finaliser of Austin
 * Appleby's MurmurHash3 with its constants.) */
constexpr uint64_t mix_factors[2] = {0xff51afd7ed558ccdu, 0xc4ceb9fe1a85ec53u};

inline uint64_t mix_bits(uint64_t number) {
    number = (number ^ number >> 33) * mix_factors[0];
    number = (number ^ number >> 33) * mix_factors[1];
    return number ^ number >> 33;
}

/* A defect that the checks must find, for tests: make EXTRA=-DMUTANT=1. */
#ifndef MUTANT
#define MUTANT 0
#endif

#endif
