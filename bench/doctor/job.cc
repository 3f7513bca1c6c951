#include "bench/doctor/job.h"

#include <fmt/format.h>

#include <algorithm>

namespace pacecar::doctor {

std::string name_of(const Process& process) {
  const std::string who = process.rank ? fmt::format("rank {}", *process.rank) : process.program;
  return fmt::format("{} ({}, pid {})", who, process.host, process.pid);
}

std::string name_of(const SilentProcess& process) {
  return fmt::format("pid {} on {}", process.pid, process.host);
}

void Job::add(Process process) {
  const auto known = [this](const Nic& nic) { return nics_.contains(nic.identity); };
  if (std::ranges::any_of(process.nics, known)) return;
  for (size_t i = 0; i < process.nics.size(); ++i) {
    nics_[process.nics[i].identity] = {processes_.size(), i};
  }
  processes_.push_back(std::move(process));
}

Job::Place Job::find(const std::string& identity) const {
  const auto found = nics_.find(identity);
  if (found == nics_.end()) return {};
  const Process& process = processes_[found->second.first];
  return {&process, &process.nics[found->second.second]};
}

}  // namespace pacecar::doctor
