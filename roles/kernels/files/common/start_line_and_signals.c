/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "common/start_line_and_signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "common/errors.h"

static atomic_bool stop_flag; /* the flag is lock-free, so a signal handler may set it */

static void on_stop(int signal_number) {
    (void)signal_number;
    atomic_store(&stop_flag, true);
}

static void write_all(const char *text) {
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored; /* a failed write is ignored, since no other place for the message exists */
}

static void on_fault(int signal_number) {
    write_all(get_program_name());
    if (signal_number == SIGBUS)
        write_all(": the kernel has no free huge page on the requested nodes (SIGBUS); "
                  "reserve enough of them on those nodes\n");
    else
        write_all(": this program was built for another CPU (SIGILL); build it on this machine\n");
    _exit(EXIT_REFUSED);
}

static void stop_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

void install_signal_handlers(void) {
    sigset_t blocked;
    stop_signals(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    /* SA_RESTART is set because a stop signal must not interrupt the write() of a result that a
     * slow reader delays. A stop signal still ends a wait, because ppoll() is never restarted, see
     * signal(7). */
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    struct sigaction fault = {.sa_handler = on_fault};
    sigaction(SIGBUS, &fault, NULL);
    sigaction(SIGILL, &fault, NULL);
}

void deliver_stop_signals(void) {
    sigset_t wanted;
    stop_signals(&wanted);
    pthread_sigmask(SIG_UNBLOCK, &wanted, NULL);
}

bool stop_requested(void) { return atomic_load_explicit(&stop_flag, memory_order_relaxed); }

enum start wait_for_start(void) {
    sigset_t while_waiting;
    pthread_sigmask(SIG_SETMASK, NULL, &while_waiting);
    sigdelset(&while_waiting, SIGTERM);
    sigdelset(&while_waiting, SIGINT);
    for (;;) {
        /* ppoll() unblocks the signals and waits in one step, so a stop signal that arrives between
         * the test of the flag and the wait is not lost. */
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = stop_requested() ? -1 : ppoll(&input, 1, NULL, &while_waiting);
        if (stop_requested())
            return START_STOPPED;
        if (ready < 0)
            continue;
        char byte;
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got == 1 && byte == '\n')
            return START_GO;
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return START_END_OF_INPUT;
    }
}

const char *stopped_by_start(enum start start) {
    if (start == START_GO)
        return NULL;
    return start == START_END_OF_INPUT ? "end_of_input" : "signal";
}
