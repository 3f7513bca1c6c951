// Another host, over ssh: `ssh HOST pacecar top --json` there prints a line for each look.
//
// What comes is that host's, and is not trusted: a line is evidence as the doctor reads it, or the
// end.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/doctor/documents.h"

namespace pacecar::top {

// Runs until it is stopped or the command ends; `post`s each line. Returns why it ended; one
// sentence.
std::string watch_remote(const std::vector<std::string>& command, const std::stop_token& stop,
                         const std::function<void(doctor::Evidence)>& post);

}  // namespace pacecar::top
