#include "bench/metrics/process_numbers.h"

#include <fmt/format.h>

namespace pacecar::metrics {
namespace {

std::string kind_of(const doctor::Process& process) {
  return fmt::format("{}/{}", process.program,
                     process.rank ? std::to_string(*process.rank) : "none");
}

// NICs have unique identities; a process without one is its pid.
std::string identity_of(const doctor::Process& process) {
  return fmt::format("{}/{}", process.pid,
                     process.nics.empty() ? "" : process.nics.front().identity);
}

size_t smallest_free(const std::map<std::string, size_t>& taken) {
  std::set<size_t> numbers;
  for (const auto& [identity, number] : taken) numbers.insert(number);
  size_t free = 0;
  while (numbers.contains(free)) ++free;
  return free;
}

}  // namespace

std::vector<size_t> ProcessNumbers::of(const std::vector<doctor::Process>& processes) {
  std::map<Kind, std::map<Identity, size_t>> living;
  for (const doctor::Process& process : processes) {
    const auto kind = numbers_.find(kind_of(process));
    if (kind == numbers_.end()) continue;
    const auto known = kind->second.find(identity_of(process));
    if (known != kind->second.end()) living[kind->first].insert(*known);
  }
  numbers_ = std::move(living);
  std::vector<size_t> numbers;
  for (const doctor::Process& process : processes) {
    auto& taken = numbers_[kind_of(process)];
    const size_t next = smallest_free(taken);
    numbers.push_back(taken.emplace(identity_of(process), next).first->second);
  }
  return numbers;
}

}  // namespace pacecar::metrics
