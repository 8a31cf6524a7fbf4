/* SPDX-License-Identifier: Apache-2.0
 *
 * What every kernel of this folder shares: errors, numbers from the command line, time, the stop
 * flag, and the start signal. CPU lists and pinning are in cpu_lists.h, memory and its placement in
 * placed_memory.h.
 */
#ifndef CHAOSITY_COMMON_H
#define CHAOSITY_COMMON_H

#include <stdbool.h>
#include <stdint.h>

enum exit_code {
    EXIT_VALID = 0,   /* measured, and the result is right (or stopped before anything ran) */
    EXIT_INVALID = 1, /* measured, but the result is wrong: the numbers must not be used */
    EXIT_REFUSED = 2, /* cannot do what was asked; one sentence on stderr says why */
};

/* Called once by main(): the name stands before every error. */
void set_program_name(const char *name);
const char *get_program_name(void);

/* Prints "NAME: SENTENCE" on stderr. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Complains and ends the process with EXIT_REFUSED. May be called by any thread; when several call
 * it at once, one sentence is printed. */
_Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Numbers from the command line. Refuse (naming the option) what is not wholly a number, is
 * negative, or is larger than `most`. */
uint64_t parse_count(const char *option, const char *text, uint64_t most);
double parse_seconds(const char *option, const char *text, double most);

/* To be called after a line was printed. Refuses when it could not be written (a full disk; when
 * the reader is gone, SIGPIPE ends the process). */
void require_written(void);

/* The number after `key` in a file of the kernel (key "": the file's first number); -1 when the
 * file or the key is not there. */
int64_t kernel_number(const char *path, const char *key);

/* CLOCK_MONOTONIC: the same clock in all processes of a machine, so that the samples of loads that
 * run together can be laid over each other; never set back, unlike the time of day. */
uint64_t monotonic_ns(void);

/* SIGTERM and SIGINT set the stop flag, nothing else. SIGBUS (a huge page that the kernel promised
 * and has not got on the bound node) and SIGILL (a binary built for another CPU) become a sentence.
 * To be called before threads are made: they inherit SIGTERM and SIGINT blocked, so that both reach
 * the main thread, which is the one that waits for input. */
void install_signal_handlers(void);
void deliver_stop_signals(void); /* by the main thread, when it is ready to be stopped */
bool stop_requested(void);

enum start { START_GO, START_END_OF_INPUT, START_STOPPED };

/* Blocks until a whole line, or the end of input, arrives on stdin, or a stop signal does. */
enum start wait_for_start(void);

#endif
