// The rules on which NCCL relies in a net plugin.
#pragma once

#include <span>
#include <string_view>

namespace pacecar::check {

class Host;

struct Rule {
  std::string_view name;      // for --only
  std::string_view sentence;  // what a plugin must do
  void (*check)(Host& host);  // throws NotOffered or nccl::HostError
  int ranks = 1;              // processes that run `check` at once, each with a Host
};

std::span<const Rule> setup_rules();
std::span<const Rule> transfer_rules();
std::span<const Rule> group_rules();
std::span<const Rule> crowd_rules();
std::span<const Rule> teardown_rules();

}  // namespace pacecar::check
