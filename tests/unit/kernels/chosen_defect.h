/* SPDX-License-Identifier: Apache-2.0
 *
 * A variable of the environment chooses the defect of a program (`MUTANT` in its sources), so that
 * one build has all of them. EXTRA="-include .../chosen_defect.h" puts this before each source, so
 * it includes nothing: what a source defines before its own headers must still count.
 */
#ifdef __cplusplus
extern "C" char *getenv(const char *) noexcept;
#else
extern char *getenv(const char *);
#endif

static int chosen_defect;

__attribute__((constructor)) static void choose_defect(void) {
    const char *number = getenv("CHOSEN_DEFECT");
    chosen_defect = number ? *number - '0' : 0;
}

#define MUTANT chosen_defect
