// Findings about a host, each of a kind in README.md's table. The kind determines id, severity and
// the form of the cure. Pure.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pacecar::preflight {

enum class Severity : uint8_t { kOk, kInfo, kWarning, kError };

constexpr std::string_view to_string(Severity severity) {
  constexpr std::array<std::string_view, 4> kNames = {"ok", "info", "warning", "error"};
  return kNames[static_cast<size_t>(severity)];
}

consteval Severity severity_of(std::string_view name) {
  auto severity = Severity::kOk;
  while (to_string(severity) != name) severity = Severity(static_cast<uint8_t>(severity) + 1);
  return severity;
}

struct FindingKind {
  std::string_view id;
  Severity severity;
  std::string_view what;
  std::string_view cure;  // words in capitals stand for facts of the host
};

inline constexpr std::array kFindingKinds = {
#define PACECAR_FINDING(id, severity, what, cure) \
  FindingKind{id, severity_of(#severity), what, cure},
#include <findings.def>  // CMakeLists.txt makes it from README.md
#undef PACECAR_FINDING
};

// The id of a kind; any other text does not compile.
struct FindingId {
  consteval FindingId(const char* id)  // NOLINT: implicit
      : kind(std::ranges::find(kFindingKinds, std::string_view(id), &FindingKind::id)) {
    if (kind == kFindingKinds.end()) throw "README.md has no such id";
  }
  const FindingKind* kind;
};

struct Finding {
  std::string_view id;
  Severity severity;
  std::string subject;
  std::string message;  // one line
  std::string cure;     // a command line; empty: nothing to do
};

// The device, port, interface or limit of a finding, and what words of cures stand for there. A
// word whose value is empty is unknown: it stays for the reader to fill in.
struct Subject {
  using Words = std::vector<std::pair<std::string_view, std::string>>;
  template <std::convertible_to<std::string_view> Name>
  Subject(const Name& its_name, Words its_words = {})  // NOLINT: implicit
      : name(its_name), words(std::move(its_words)) {}

  std::string name;
  Words words;
};

// Collects findings. Text from the host's files is made printable, and in cures also safe for a
// shell, because users paste cures.
class Findings {
 public:
  // The message is a format of fmt, with its arguments.
  template <typename... Args>
  void add(FindingId id, const Subject& subject, fmt::format_string<Args...> message,
           Args&&... args) {
    add_text(*id.kind, subject, fmt::format(message, std::forward<Args>(args)...));
  }

  const std::vector<Finding>& all() const { return all_; }
  size_t count(Severity severity) const;
  // kOk when there is none.
  Severity worst() const;

 private:
  void add_text(const FindingKind& kind, const Subject& subject, std::string_view message);

  std::vector<Finding> all_;
};

}  // namespace pacecar::preflight
