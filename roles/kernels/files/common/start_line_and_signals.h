/* SPDX-License-Identifier: Apache-2.0
 *
 * The line on stdin that starts a measurement, and the signals that stop it.
 */
#ifndef CHAOSITY_START_LINE_AND_SIGNALS_H
#define CHAOSITY_START_LINE_AND_SIGNALS_H

#include <stdbool.h>

/* Prepares signals; main() calls it before it creates threads. SIGTERM and SIGINT set a flag, see
 * stop_requested(). In new threads, both signals are blocked, so that the main thread, which waits
 * for input, receives the signals. Two signals end the process with an error message: SIGBUS (the
 * kernel promised a huge page and has none on the bound node) and SIGILL (the program was built for
 * another CPU). */
void install_signal_handlers(void);

/* Lets the main thread receive SIGTERM and SIGINT; the thread calls this function when it is ready
 * to be stopped. */
void deliver_stop_signals(void);

/* Returns whether SIGTERM or SIGINT has arrived. */
bool stop_requested(void);

enum start { START_GO, START_END_OF_INPUT, START_STOPPED };

/* Waits for a complete line on stdin, the end of input or a stop signal, and returns which of the
 * three came. */
enum start wait_for_start(void);

/* Returns the value of "stopped_by" in the output of a run that did not start; NULL for
 * START_GO. */
const char *stopped_by_start(enum start start);

#endif
