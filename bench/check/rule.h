// The rules on which NCCL relies in a net plugin.
#pragma once

#include <span>
#include <stdexcept>
#include <string_view>

namespace pacecar::check {

class Host;

// Why a rule does not apply to this plugin.
class NotOffered : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Rule {
  std::string_view name;      // for --only
  std::string_view sentence;  // what a plugin must do
  int ranks;                  // processes that run `check` at once, each with a Host
  void (*check)(Host& host);  // throws NotOffered or nccl::HostError
};

std::span<const Rule> setup_rules();
std::span<const Rule> transfer_rules();
std::span<const Rule> group_rules();
std::span<const Rule> crowd_rules();
std::span<const Rule> teardown_rules();

}  // namespace pacecar::check
