/* SPDX-License-Identifier: Apache-2.0
 *
 * Includes the headers of the C programs in C++.
 */
#ifndef CHAOSITY_COMMON_C_HEADERS_HPP
#define CHAOSITY_COMMON_C_HEADERS_HPP

#define _Noreturn [[noreturn]] /* C11's word, which C++ lacks */
extern "C" {
#include "common/command_line.h"
#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/monotonic_clock.h"
#include "common/parse_numbers.h"
#include "common/placed_memory.h"
#include "common/run_options.h"
#include "common/start_line_and_signals.h"
}
#undef _Noreturn

#endif
