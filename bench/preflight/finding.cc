#include "bench/preflight/finding.h"

#include <algorithm>
#include <array>

#include "transport/base/check.h"
#include "transport/base/printable.h"

namespace pacecar::preflight {
namespace {

constexpr std::array kKinds = {
#define PACECAR_FINDING(enumerator, id, severity, what, cure) \
  FindingKind{id, Severity::severity, what, cure},
#include "bench/preflight/findings.def"
#undef PACECAR_FINDING
};

constexpr std::string_view kSafeInShell =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/,@+=";

std::string shell_word(std::string_view text) {
  std::string word = printable(text);
  if (word.find_first_not_of(kSafeInShell) == std::string::npos) return word;
  std::erase(word, '\'');
  return "'" + word + "'";
}

std::string cure_of(const FindingKind& kind, CureWords words) {
  std::string cure(kind.cure);
  for (const auto& [name, value] : words) {
    if (value.empty()) continue;  // not known: the word stays for the reader to fill in
    const std::string word = shell_word(value);
    size_t at = cure.find(name);
    PACECAR_CHECK(at != std::string::npos);
    for (; at != std::string::npos; at = cure.find(name, at + word.size())) {
      cure.replace(at, name.size(), word);
    }
  }
  return cure;
}

}  // namespace

std::string_view to_string(Severity severity) {
  constexpr std::array<std::string_view, 4> kNames = {"ok", "info", "warning", "error"};
  return kNames[static_cast<size_t>(severity)];
}

std::span<const FindingKind> finding_kinds() { return kKinds; }

void Findings::add(FindingId id, std::string_view subject, std::string_view message,
                   CureWords words) {
  const FindingKind& kind = kKinds[static_cast<size_t>(id)];
  all_.push_back(
      {kind.id, kind.severity, printable(subject), printable(message), cure_of(kind, words)});
}

size_t Findings::count(Severity severity) const {
  return static_cast<size_t>(
      std::ranges::count_if(all_, [&](const Finding& f) { return f.severity == severity; }));
}

Severity Findings::worst() const {
  Severity worst = Severity::kOk;
  for (const Finding& finding : all_) worst = std::max(worst, finding.severity);
  return worst;
}

}  // namespace pacecar::preflight
