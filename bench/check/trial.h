// Runs one rule in processes of its own, so that a plugin that crashes or hangs fails a rule and
// nothing else.
#pragma once

#include <functional>
#include <string>

#include "bench/check/arena.h"
#include "transport/base/units.h"

namespace pacecar::check {

enum class Verdict : uint8_t { kPass, kFail, kNotOffered };

struct Outcome {
  Verdict verdict = Verdict::kFail;
  std::string detail;  // why not; or what was found
};

// `body` runs in each process, with the rank's number, and may throw anything.
Outcome run_trial(int ranks, Duration limit, const std::function<void(Arena&, int)>& body);

}  // namespace pacecar::check
