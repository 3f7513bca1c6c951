// The documents that processes serve (transport/api/README.md), read as untrusted data: whatever
// they hold, the result is a Process or an error of one sentence.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "bench/doctor/job.h"
#include "transport/base/result.h"

namespace pacecar::doctor {

// A process's documents of two samples with some time between, or of one: then `before` is null.
struct Samples {
  nlohmann::json before = nullptr;
  nlohmann::json now = nullptr;
  // The profiler's records at these times; null: no profiler. Of the first, only the counters of
  // the whole process are needed.
  nlohmann::json profile_before = nullptr;
  nlohmann::json profile = nullptr;
};

// The samples of a host's processes, or of several hosts' from files.
struct Evidence {
  std::vector<Samples> seen;
  std::vector<SilentProcess> silent;
};

// Reads whole documents. Errors: kPeer.
Result<Process> read_samples(const Samples& samples);

// Reads a summary (or a whole document, without its flows). Errors: kPeer.
Result<Process> read_summary(const nlohmann::json& document);

// From two samples of the page /profile; `before` may be null. Errors: kPeer.
Result<std::vector<Profile>> read_profiles(const nlohmann::json& before, const nlohmann::json& now);

nlohmann::json to_json(const Evidence& evidence);
// Adds the processes of the text of such an object; its other members are ignored. Errors: kPeer.
Result<void> add_evidence(std::string_view text, Evidence& evidence);

}  // namespace pacecar::doctor
