// The documents that processes serve (transport/api/README.md), read as what they are: data of
// others. Whatever they hold, the answer is a Process or one sentence.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "bench/doctor/job.h"
#include "transport/base/result.h"

namespace pacecar::doctor {

// A process's documents of two looks with some time between, or of one: then `before` is null.
struct Sighting {
  nlohmann::json before;
  nlohmann::json now;
  // The profiler's records at that time; null: no profiler.
  nlohmann::json profile_before = nullptr;
  nlohmann::json profile = nullptr;
};

// The samples of a host's processes, or of several hosts' from files.
struct Evidence {
  std::vector<Sighting> seen;
  std::vector<SilentProcess> silent;
};

// Of whole documents. Errors: kPeer.
Result<Process> read_sighting(const Sighting& sighting);

// Of a summary (or of a whole document, of which it leaves the flows). Errors: kPeer.
Result<Process> read_summary(const nlohmann::json& document);

nlohmann::json to_json(const Evidence& evidence);
// Adds what such an object, as text, holds; others' members are left alone. Errors: kPeer.
Result<void> add_evidence(std::string_view text, Evidence& evidence);

}  // namespace pacecar::doctor
