// Findings about a host, each of a kind that findings.def lists. The kind determines id, severity
// and the form of the cure. Pure.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pacecar::preflight {

enum class Severity : uint8_t { kOk, kInfo, kWarning, kError };
std::string_view to_string(Severity severity);

enum class FindingId : uint8_t {
#define PACECAR_FINDING(enumerator, ...) enumerator,
#include "bench/preflight/findings.def"
#undef PACECAR_FINDING
};

struct FindingKind {
  std::string_view id;
  Severity severity;
  std::string_view what;
  std::string_view cure;  // with words in capitals for what the host has
};

// Indexed by FindingId.
std::span<const FindingKind> finding_kinds();

struct Finding {
  std::string_view id;
  Severity severity;
  std::string subject;  // the device, port, interface or limit
  std::string message;  // one line
  std::string cure;     // a command line; empty: nothing to do
};

// Words of a cure and their replacements on this host.
using CureWords = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// Collects findings. Text from the host's files is made printable, and in cures also safe for a
// shell, because users paste cures.
class Findings {
 public:
  void add(FindingId id, std::string_view subject, std::string_view message, CureWords words = {});

  const std::vector<Finding>& all() const { return all_; }
  size_t count(Severity severity) const;
  // kOk when there is none.
  Severity worst() const;

 private:
  std::vector<Finding> all_;
};

}  // namespace pacecar::preflight
