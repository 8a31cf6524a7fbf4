/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "common/process.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *program_name = "chaosity";
static atomic_bool stop_flag; /* lock-free, hence safe in a signal handler */

void set_program_name(const char *name) { program_name = name; }
const char *get_program_name(void) { return program_name; }

static void complain_with(const char *format, va_list arguments) {
    char sentence[1024];
    vsnprintf(sentence, sizeof sentence, format, arguments);
    fprintf(stderr, "%s: %s\n", program_name, sentence);
}

void complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    complain_with(format, arguments);
    va_end(arguments);
}

_Noreturn void refuse(const char *format, ...) {
    static atomic_flag speaking = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&speaking))
        pause(); /* another thread is about to end the process */
    va_list arguments;
    va_start(arguments, format);
    complain_with(format, arguments);
    va_end(arguments);
    _exit(EXIT_REFUSED); /* not exit(): other threads are running and need no clean-up */
}

uint64_t parse_count(const char *option, const char *text, uint64_t most) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno == ERANGE || value > most)
        refuse("%s takes a whole number from 0 to %llu, not '%s'", option, (unsigned long long)most,
               text);
    return value;
}

double parse_seconds(const char *option, const char *text, double most) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value <= 0 || value > most)
        refuse("%s takes a number of seconds above 0 and up to %g, not '%s'", option, most, text);
    return value;
}

void require_written(void) {
    if (fflush(stdout) != 0 || ferror(stdout))
        refuse("the results could not be written to the standard output");
}

int64_t kernel_number(const char *path, const char *key) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -1;
    char line[256];
    int64_t number = -1;
    while (number < 0 && fgets(line, sizeof line, file) != NULL) {
        const char *found = strstr(line, key);
        if (found == NULL || sscanf(found + strlen(key), "%" SCNd64, &number) != 1)
            number = -1;
    }
    fclose(file);
    return number;
}

uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void on_stop(int signal_number) {
    (void)signal_number;
    atomic_store(&stop_flag, true);
}

static void write_all(const char *text) {
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored; /* nowhere is left to complain to */
}

static void on_fault(int signal_number) {
    write_all(program_name);
    if (signal_number == SIGBUS)
        write_all(": the kernel could not give a huge page on the nodes asked for (SIGBUS); "
                  "reserve enough of them on those nodes\n");
    else
        write_all(": this binary was built for another CPU (SIGILL); build it on this machine\n");
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
    /* SA_RESTART: a stop must not break off the write() of a result that a slow reader delays.
     * Waits that a stop is to end return all the same: ppoll() is never restarted, see signal(7). */
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
        /* ppoll() unblocks the signals and waits in one step: a stop that comes between the test
         * of the flag and the wait is not lost. */
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
