#include "bench/top/board.h"

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
  for (doctor::Sighting& sighting : before.seen) {
    earlier[identity_of(sighting.now)] = &sighting.now;
  }
  earlier.erase("");
  for (doctor::Sighting& sighting : now.seen) {
    const auto same = earlier.find(identity_of(sighting.now));
    sighting.before = same == earlier.end() ? nullptr : std::move(*same->second);
    if (same != earlier.end()) earlier.erase(same);
  }
}

}  // namespace

Board::Board(const std::vector<std::string>& hosts) {
  for (const std::string& name : hosts) {
    hosts_.push_back({.name = name, .evidence = {}, .notes = {}});
  }
}

void Board::post(size_t host, doctor::Evidence evidence, std::vector<std::string> notes) {
  const std::lock_guard lock(mutex_);
  Host& at = hosts_[host];
  pair_up(at.evidence, evidence);
  at.evidence = std::move(evidence);
  at.notes = std::move(notes);
  ++at.looks;
  ++version_;
}

void Board::end(size_t host, const std::string& why) {
  const std::lock_guard lock(mutex_);
  Host& at = hosts_[host];
  at.evidence = {};
  at.notes = {at.name.empty() ? why : fmt::format("{}: {}", at.name, why)};
  at.ended = true;
  ++version_;
}

Board::Seen Board::all() const {
  const std::lock_guard lock(mutex_);
  Seen seen;
  for (const Host& host : hosts_) {
    std::ranges::copy(host.evidence.seen, std::back_inserter(seen.evidence.seen));
    std::ranges::copy(host.evidence.silent, std::back_inserter(seen.evidence.silent));
    std::ranges::copy(host.notes, std::back_inserter(seen.notes));
  }
  return seen;
}

uint64_t Board::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

bool Board::has_looks(uint64_t looks) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(
      hosts_, [looks](const Host& host) { return host.ended || host.looks >= looks; });
}

}  // namespace pacecar::top
