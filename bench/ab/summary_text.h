// The summary as people read it on a terminal.
#pragma once

#include <string>

#include "bench/ab/summary.h"

namespace pacecar::ab {

// At most five significant digits, no exponent where it can be avoided.
std::string number_text(double value);

// `color`: with escape sequences.
std::string summary_text(const Experiment& experiment, const Summary& summary, bool color);

}  // namespace pacecar::ab
