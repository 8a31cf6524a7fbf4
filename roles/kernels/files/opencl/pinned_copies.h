/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies in one direction between pinned memory of the host and the memory of an OpenCL device.
 *
 * A buffer is copied piece by piece, again and again, and a few copies are always in flight, so the
 * device does not wait for the host. Every copy changes data, so that a missing copy is found:
 * before a copy to the device, three words of its piece become the number of the pass; before a
 * copy from the device, three words of the host's piece are overwritten, and the copy has to
 * restore these words.
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
    /* The buffer on the host, which the driver allocates, and the buffer on the device. */
    cl_mem pinned, remote;
    uint64_t *words;       /* address of the buffer on the host */
    cl_event events[MOST_IN_FLIGHT];
    uint64_t begun, ended; /* number of copies since the start */
    uint64_t wrong;        /* number of words that copies from the device did not restore */
};

/* Allocates both buffers, fills them with different contents and copies each piece once. */
struct copies new_copies(const struct opencl_device *device, int queue, bool to_device,
                         size_t bytes, size_t piece_bytes);
void free_copies(const struct copies *copies);

/* Starts copies, so that some are always in flight; returns how many copies have ended since the
 * last call. The function does not wait. */
uint64_t go_on_copying(struct copies *copies);

/* Waits for the copies in flight. If a copy does not end for some seconds, the process ends with an
 * error. */
void stop_copying(struct copies *copies);

/* Reads all pieces, pieces on the device into `piece`; returns how many words are wrong. */
uint64_t wrong_words(const struct copies *copies, uint64_t *piece);

/* Returns the number of pages of the host whose node the kernel shows; drivers may hide pages. If
 * one of these pages lies on another node than `nodes`, the process ends with an error, unless
 * `nodes` is empty. */
uint64_t pages_on_nodes(const struct copies *copies, struct index_list nodes);

#endif
