/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/expected_values.h"

#include <float.h>
#include <math.h>

void record_difference(double got, double wanted, struct verdict *verdict) {
    double error = fabs(got - wanted) / fabs(wanted);
    if (!(error < DBL_MAX)) /* the error is not a number or infinite; JSON has neither of the two */
        error = DBL_MAX;
    verdict->max_relative_error = fmax(verdict->max_relative_error, error);
    verdict->wrong++;
}
