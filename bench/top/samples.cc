#include "bench/top/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace pacecar::top {
namespace {

// Unique: a later process may have the same pid.
std::string identity_of(const nlohmann::json& document) {
  const auto process = doctor::read_summary(document);
  if (!process || process->nics.empty()) return "";
  return fmt::format("{}/{}", process->pid, process->nics[0].identity);
}

void pair_up(doctor::Evidence& before, doctor::Evidence& now) {
  std::map<std::string, nlohmann::json*> earlier;
  for (doctor::Samples& samples : before.seen) {
    earlier[identity_of(samples.now)] = &samples.now;
  }
  earlier.erase("");
  for (doctor::Samples& samples : now.seen) {
    const auto same = earlier.find(identity_of(samples.now));
    samples.before = same == earlier.end() ? nullptr : std::move(*same->second);
    if (same != earlier.end()) earlier.erase(same);
  }
}

}  // namespace

HostSamples::HostSamples(const std::vector<std::string>& hosts) {
  for (const std::string& name : hosts) {
    hosts_.push_back({.name = name, .evidence = {}, .notes = {}});
  }
}

void HostSamples::post(size_t host, doctor::Evidence evidence, std::vector<std::string> notes) {
  const std::lock_guard lock(mutex_);
  Host& at = hosts_[host];
  pair_up(at.evidence, evidence);
  at.evidence = std::move(evidence);
  at.notes = std::move(notes);
  ++at.samples;
  ++version_;
}

void HostSamples::end(size_t host, const std::string& why) {
  const std::lock_guard lock(mutex_);
  Host& at = hosts_[host];
  at.evidence = {};
  at.notes = {at.name.empty() ? why : fmt::format("{}: {}", at.name, why)};
  at.ended = true;
  ++version_;
}

HostSamples::Seen HostSamples::all() const {
  const std::lock_guard lock(mutex_);
  Seen seen;
  for (const Host& host : hosts_) {
    std::ranges::copy(host.evidence.seen, std::back_inserter(seen.evidence.seen));
    std::ranges::copy(host.evidence.silent, std::back_inserter(seen.evidence.silent));
    std::ranges::copy(host.notes, std::back_inserter(seen.notes));
  }
  return seen;
}

uint64_t HostSamples::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

bool HostSamples::has_samples(uint64_t samples) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(
      hosts_, [samples](const Host& host) { return host.ended || host.samples >= samples; });
}

}  // namespace pacecar::top
