#include "bench/preflight/finding.h"

#include "bench/cli/command_line.h"
#include "transport/base/printable.h"

namespace pacecar::preflight {
namespace {

// In one pass: what looks like a word within a value stays.
std::string cure_of(std::string_view form, const Subject& subject) {
  std::string cure;
  while (!form.empty()) {
    const auto word = std::ranges::find_if(subject.words, [&](const auto& one) {
      return form.starts_with(one.first) && !one.second.empty();
    });
    const bool known = word != subject.words.end();
    cure += known ? cli::shell_quoted(printable(word->second)) : std::string(1, form.front());
    form.remove_prefix(known ? word->first.size() : 1);
  }
  return cure;
}

}  // namespace

void Findings::add_text(const FindingKind& kind, const Subject& subject, std::string_view message) {
  all_.push_back({kind.id, kind.severity, printable(subject.name), printable(message),
                  cure_of(kind.cure, subject)});
}

size_t Findings::count(Severity severity) const {
  return static_cast<size_t>(std::ranges::count(all_, severity, &Finding::severity));
}

Severity Findings::worst() const {
  Severity worst = Severity::kOk;
  for (const Finding& finding : all_) worst = std::max(worst, finding.severity);
  return worst;
}

}  // namespace pacecar::preflight
