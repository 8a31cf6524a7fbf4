/* SPDX-License-Identifier: Apache-2.0
 *
 * A merge sort. Both halves are sorted at the same time, and a merge is divided in the middle of
 * its output, so its two sides run at the same time too. Every run has other keys, all different.
 * Each key can be converted back to the number that it was made from, so keys that are in rising
 * order and come from the right numbers are exactly the keys to sort.
 *
 * Teams sort their own parts. Then each team merges its share of the result from all parts, which
 * is the single pass over other teams' memory that no sorting method can avoid.
 */
#include <algorithm>
#include <tbb/parallel_for.h>
#include <tbb/parallel_invoke.h>

#include "tasks/task_program_interface.hpp"

namespace {

using key = uint64_t;

const size_t leaf_keys = 512;   /* 4 KiB, sorted by one task */
const size_t merge_keys = 8192; /* 64 KiB, merged by one task */
/* Keys of one task in the merge over teams. These tasks begin and end inside pages of every part,
 * so short tasks would touch more than they merge. */
const size_t share_keys = 32768;

constexpr uint64_t inverse(uint64_t odd) {
    uint64_t found = odd; /* 3 bits are right; each step doubles their number (Newton) */
    for (int step = 0; step < 5; step++)
        found *= 2 - odd * found;
    return found;
}

/* The inverse of mix_bits(). */
uint64_t unmix_bits(uint64_t number) {
    number = (number ^ number >> 33) * inverse(mix_factors[1]);
    number = (number ^ number >> 33) * inverse(mix_factors[0]);
    return number ^ number >> 33;
}

struct sorted {
    const key *keys;
    size_t count;
};

class mergesort : public task_program {
  public:
    explicit mergesort(const program_context &where)
        : task_program(where), count_(where.bytes / (2 * sizeof(key))),
          first_(arenas.split_among_teams(count_)), keys_((size_t)arenas.count()),
          other_(keys_.size()) {}

    /* Whole pages, so the two arrays share no page. */
    size_t part_bytes(int team) const override { return 2 * array_bytes(team); }

    void place_part(int team, char *part) override {
        keys_[(size_t)team] = reinterpret_cast<key *>(part);
        other_[(size_t)team] = reinterpret_cast<key *>(part + array_bytes(team));
    }

    void fill(int) override {} /* each run writes its keys */

    void run(int team, uint64_t number) override {
        const size_t i = (size_t)team;
        tbb::parallel_for(
            tbb::blocked_range<size_t>(0, keys_of(i), merge_keys),
            [=](const tbb::blocked_range<size_t> &piece) {
                note(keys_[i] + piece.begin(), piece.size());
                for (size_t k = piece.begin(); k < piece.end(); k++)
                    keys_[i][k] = mix_bits(number * count_ + first_[i] + k);
            },
            tbb::simple_partitioner());
        sort(keys_[i], other_[i], keys_of(i), false);
        if (arenas.count() > 1) {
            arenas.wait_for_all();
            merge_share(i);
        }
        arenas.wait_for_all();
    }

    uint64_t count_wrong_values(uint64_t runs) const override {
        uint64_t wrong = 0;
        const key *last = nullptr;
        for (size_t i = 0; i < keys_.size(); i++)
            for (size_t k = 0; k < keys_of(i); k++) {
                const key *one = (arenas.count() > 1 ? other_ : keys_)[i] + k;
                wrong += last != nullptr && *last >= *one;
                wrong += unmix_bits(*one) - (runs - 1) * count_ >= count_;
                last = one;
            }
        return wrong;
    }

  private:
    size_t keys_of(size_t i) const { return first_[i + 1] - first_[i]; }

    size_t array_bytes(int team) const {
        const size_t bytes = keys_of((size_t)team) * sizeof(key), page = 4096;
        return (bytes + page - 1) / page * page;
    }

    void note(const key *keys, size_t count) const {
        counter.record_access(keys, count * sizeof(key));
    }

    /* Sorts; the result is in `other` if `into_other`, else in `keys`. */
    void sort(key *keys, key *other, size_t count, bool into_other) const {
        if (count <= leaf_keys) {
            note(keys, count);
            std::sort(keys, keys + count);
            if (into_other) {
                note(other, count);
                std::copy(keys, keys + count, other);
            }
            return;
        }
        const size_t half = count / 2;
        tbb::parallel_invoke([=] { sort(keys, other, half, !into_other); },
                             [=] { sort(keys + half, other + half, count - half, !into_other); });
        const key *from = into_other ? keys : other;
        merge({from, half}, {from + half, count - half}, into_other ? other : keys);
    }

    void merge(sorted a, sorted b, key *to) const {
        if (a.count + b.count <= merge_keys) {
            note(a.keys, a.count);
            note(b.keys, b.count);
            note(to, a.count + b.count);
            std::merge(a.keys, a.keys + a.count, b.keys, b.keys + b.count, to);
            if (MUTANT)
                to[0] = to[1];
            return;
        }
        const size_t middle = (a.count + b.count) / 2;
        /* How many of the smallest `middle` keys come from a; the others are the smallest of b. */
        size_t low = middle > b.count ? middle - b.count : 0, high = std::min(middle, a.count);
        while (low < high) {
            const size_t of_a = (low + high) / 2;
            if (a.keys[of_a] < b.keys[middle - of_a - 1])
                low = of_a + 1;
            else
                high = of_a;
        }
        const size_t of_b = middle - low;
        tbb::parallel_invoke(
            [=] {
                merge({a.keys, low}, {b.keys, of_b}, to);
            },
            [=] {
                merge({a.keys + low, a.count - low}, {b.keys + of_b, b.count - of_b}, to + middle);
            });
    }

    /* Number of keys of each part among the smallest `place` keys of all. */
    std::vector<size_t> cut(size_t place) const {
        std::vector<size_t> below(keys_.size());
        for (size_t i = 0; i < below.size(); i++)
            below[i] = keys_of(i);
        if (place == count_)
            return below;
        key low = 0, high = ~(key)0; /* smallest key with at least `place` keys below it */
        while (low < high) {
            const key middle = low + (high - low) / 2;
            if (count_below(middle, below) >= place)
                high = middle;
            else
                low = middle + 1;
        }
        count_below(low, below);
        return below;
    }

    size_t count_below(key limit, std::vector<size_t> &below) const {
        size_t sum = 0;
        for (size_t i = 0; i < below.size(); i++) {
            const key *keys = keys_[i];
            below[i] = (size_t)(std::lower_bound(keys, keys + keys_of(i), limit) - keys);
            sum += below[i];
        }
        return sum;
    }

    void merge_share(size_t i) const {
        tbb::parallel_for(
            tbb::blocked_range<size_t>(0, keys_of(i), share_keys),
            [=](const tbb::blocked_range<size_t> &piece) {
                std::vector<sorted> parts;
                const auto begin = cut(first_[i] + piece.begin());
                const auto end = cut(first_[i] + piece.end());
                for (size_t part = 0; part < begin.size(); part++) {
                    const sorted one = {keys_[part] + begin[part], end[part] - begin[part]};
                    note(one.keys, one.count);
                    if (one.count > 0)
                        parts.push_back(one);
                }
                note(other_[i] + piece.begin(), piece.size());
                merge_all(parts, other_[i] + piece.begin());
            },
            tbb::simple_partitioner());
    }

    static void merge_all(std::vector<sorted> &parts, key *to) {
        const auto later = [](const sorted &a, const sorted &b) { return *a.keys > *b.keys; };
        std::make_heap(parts.begin(), parts.end(), later);
        while (!parts.empty()) {
            std::pop_heap(parts.begin(), parts.end(), later);
            sorted &least = parts.back();
            *to++ = *least.keys++;
            if (--least.count == 0)
                parts.pop_back();
            else
                std::push_heap(parts.begin(), parts.end(), later);
        }
    }

    size_t count_;
    std::vector<size_t> first_;
    std::vector<key *> keys_, other_;
};

} // namespace

std::unique_ptr<task_program> new_mergesort(const program_context &where) {
    return std::make_unique<mergesort>(where);
}
