/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies in one direction between pinned memory of the host and the memory of an OpenCL device.
 *
 * A buffer is copied piece by piece, again and again, and a few copies are always in flight, so the
 * device does not wait for the host. Every copy is recognisable: before a copy to the device, three
 * words of its piece become the number of the pass; before a copy from the device, three words of
 * the host's piece are overwritten, and the copy has to restore them.
 */
#ifndef CHAOSITY_PINNED_COPIES_H
#define CHAOSITY_PINNED_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cpu_lists_and_pinning.h"
#include "opencl/opencl_device.h"

enum { MOST_IN_FLIGHT = 4 };

struct copies {
    const struct opencl_device *device;
    cl_command_queue queue;
    bool to_device;
    size_t piece_bytes, pieces;
    cl_mem pinned, remote; /* the host's buffer, which the driver allocates, and the device's */
    uint64_t *words;       /* of the host's buffer */
    cl_event events[MOST_IN_FLIGHT];
    uint64_t begun, ended; /* copies, since the start */
    uint64_t wrong;        /* words that copies from the device did not restore */
};

/* Allocates both buffers, fills them with different contents and copies each piece once. */
struct copies new_copies(const struct opencl_device *device, int queue, bool to_device,
                         size_t bytes, size_t piece_bytes);
void free_copies(const struct copies *copies);

/* Keeps copies in flight; returns how many have ended since the last call. Does not wait. */
uint64_t go_on_copying(struct copies *copies);

/* Waits for the copies in flight. Refuses when a copy does not end for some seconds. */
void stop_copying(struct copies *copies);

/* Reads all pieces, those on the device into `piece`; returns how many words are wrong. */
uint64_t wrong_words(const struct copies *copies, uint64_t *piece);

/* Number of the host's pages whose node the kernel shows; drivers may hide their pages. Refuses
 * when such a page lies on another node than `nodes`, unless that list is empty. */
uint64_t pages_on_nodes(const struct copies *copies, struct index_list nodes);

#endif
