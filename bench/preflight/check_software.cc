// Versions, modules, NCCL, and Pacecar's own settings.
#include <fmt/format.h>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

// The first NCCL that loads table version 11 of net plugins.
constexpr std::pair<uint64_t, uint64_t> kNcclNeeded = {2, 28};

std::string or_unknown(const std::string& text) { return text.empty() ? "not known" : text; }

// Whether the library's name, such as libnccl.so.2.27.5, has too old a version. Names without a
// version do not count.
bool is_old_nccl(const std::string& path) {
  const auto parts = split(path.substr(path.rfind(".so.") + 4), '.');
  if (parts.size() < 2) return false;
  const auto major = parse_number(parts[0]);
  const auto minor = parse_number(parts[1]);
  return major && minor && std::pair(*major, *minor) < kNcclNeeded;
}

void check_nccl(const Software& software, Findings& findings) {
  if (software.nccl.empty()) {
    findings.add("software.nccl_missing", "NCCL",
                 "no libnccl.so.2 in the usual folders; frameworks may bring their own");
  } else if (is_old_nccl(software.nccl)) {
    findings.add("software.nccl_old", "NCCL", "{}: the plugin needs {}.{} or later", software.nccl,
                 kNcclNeeded.first, kNcclNeeded.second);
  } else {
    findings.add("software.nccl", "NCCL", "{}", software.nccl);
  }
}

}  // namespace

void check_software(const Facts& facts, Findings& findings) {
  const Software& software = facts.software;
  findings.add("software.versions", "versions", "Pacecar {}, Linux {}, {}", facts.settings.version,
               or_unknown(software.kernel), or_unknown(software.os));
  const std::string modules = fmt::format("{}", fmt::join(software.modules, ", "));
  findings.add("software.modules", "modules", "{}",
               modules.empty() ? "none for RDMA or GPUs" : modules);
  check_nccl(software, findings);
  if (!facts.settings.error.empty()) {
    findings.add("software.parameters", "parameters", "{}", facts.settings.error);
  }
  for (const std::string& warning : facts.settings.warnings) {
    findings.add("software.parameter_unknown", "parameters", "{}", warning);
  }
}

}  // namespace pacecar::preflight
