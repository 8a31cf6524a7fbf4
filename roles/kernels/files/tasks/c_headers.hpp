/* SPDX-License-Identifier: Apache-2.0
 *
 * The headers that are shared with the programs in C, as C++ reads them.
 */
#ifndef CHAOSITY_C_SIDE_HPP
#define CHAOSITY_C_SIDE_HPP

#define _Noreturn [[noreturn]] /* C11's word, which C++ lacks */
extern "C" {
#include "common/process.h"
#include "common/cpu_lists.h"
#include "common/placed_memory.h"
#include "common/command_line.h"
}
#undef _Noreturn

#endif
