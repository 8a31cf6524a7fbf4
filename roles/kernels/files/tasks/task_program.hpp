/* SPDX-License-Identifier: Apache-2.0
 *
 * A task-parallel program whose data lie in one part a team. With one team it is the ordinary
 * program; with several, each team works on its own part, in its own node's memory, and reads of
 * others' parts only what the algorithm cannot do without.
 */
#ifndef CHAOSITY_TASK_PROGRAM_HPP
#define CHAOSITY_TASK_PROGRAM_HPP

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tasks/page_access_counts.hpp"
#include "tasks/thread_arenas.hpp"

/* What a program works in; it outlives the program. */
struct setting {
    teams &crew;
    const ledger &book;
    size_t bytes; /* of all data, but for copies that further teams need */
};

class workload {
  public:
    explicit workload(const setting &where) : crew(where.crew), book(where.book) {}
    virtual ~workload() = default;

    /* How much memory a team's part takes. */
    virtual size_t part_bytes(int team) const = 0;

    /* Says where a team's part is, before any page of it exists. */
    virtual void lay(int team, char *part) = 0;

    /* These are called by the first thread of each team, for its own part, and may meet the others.
     * One run is the whole computation; `number` counts runs, so that each can have other data. */
    virtual void fill(int team) = 0;
    virtual void run(int team, uint64_t number) = 0;

    /* How many values are wrong after so many runs, the last of which was `runs` - 1. */
    virtual uint64_t wrong(uint64_t runs) const = 0;

  protected:
    teams &crew;
    const ledger &book;
};

std::unique_ptr<workload> new_stencil(const setting &where);
std::unique_ptr<workload> new_matmul(const setting &where);
std::unique_ptr<workload> new_mergesort(const setting &where);
std::unique_ptr<workload> new_spmv(const setting &where);

/* Mixes the bits of a number, one to one: different numbers give different ones. (The finaliser of
 * Austin Appleby's MurmurHash3, whose constants these are.) */
constexpr uint64_t mix_factor[2] = {0xff51afd7ed558ccdu, 0xc4ceb9fe1a85ec53u};

inline uint64_t mixed(uint64_t number) {
    number = (number ^ number >> 33) * mix_factor[0];
    number = (number ^ number >> 33) * mix_factor[1];
    return number ^ number >> 33;
}

/* A mistake that the checks must find, for the tests: make EXTRA=-DMUTANT=1. */
#ifndef MUTANT
#define MUTANT 0
#endif

#endif
