// The protocol between `pacecar agent` on a host ("there") and the command that has started it
// ("here"): JSON objects, one per line, over the agent's standard input and output.
//
//   here: hello {protocol, release, environment}     there: welcome {protocol, release, machine}
//   here: run {id, arguments, announces}             there: serving {id, address, port}, if it
//                                                           announces; then ended {id, code,
//                                                           output, errors}
//   here: stop {id}                                  there: ended
//   here: alive                                      no answer
//
// The agent ends, with all that it has started, when its standard input ends, or when it has
// received nothing for kSilence, because a broken network does not report the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar::hosts {

inline constexpr uint64_t kAgentProtocol = 1;
inline constexpr Duration kSilence = Duration::from_s(300);
inline constexpr Duration kAlive = Duration::from_s(30);  // how often `alive` is sent
inline constexpr int kGraceMs = 2000;                     // from stop to kill
inline constexpr size_t kMaxAgentLine = 32U << 20;        // less than a Child keeps

}  // namespace pacecar::hosts
