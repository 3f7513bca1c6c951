// Versions, modules, NCCL, and Pacecar's own settings.
#include <fmt/format.h>

#include "bench/preflight/checks.h"

namespace pacecar::preflight {
namespace {

// The first NCCL that loads version 6 of the tables of net plugins.
constexpr Version kNcclNeeded = {2, 13};

std::string or_unknown(const std::string& text) { return text.empty() ? "not known" : text; }

void check_nccl(const Software& software, Findings& findings) {
  const std::string& path = software.nccl;
  if (path.empty()) {
    findings.add("software.nccl_missing", "NCCL",
                 "no libnccl.so.2 in the usual folders; frameworks may bring their own");
    return;
  }
  // A name without a version, unlike libnccl.so.2.27.5, does not count.
  const auto version = version_of(path.substr(path.rfind(".so.") + 4));
  if (version && *version < kNcclNeeded) {
    findings.add("software.nccl_old", "NCCL", "{}: the plugin needs {}.{} or later", path,
                 kNcclNeeded.first, kNcclNeeded.second);
  } else {
    findings.add("software.nccl", "NCCL", "{}", path);
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
  if (!facts.settings.nic_error.empty()) {
    findings.add("software.nics_closed", "NICs", "{}", facts.settings.nic_error);
  } else if (!facts.settings.nics.empty()) {
    findings.add("software.nics", "NICs", "{}", facts.settings.nics);
  }
  for (const std::string& warning : facts.settings.warnings) {
    findings.add("software.parameter_unknown", "parameters", "{}", warning);
  }
}

}  // namespace pacecar::preflight
