#include "bench/preflight/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "bench/preflight/checks.h"
#include "transport/base/printable.h"

namespace pacecar::preflight {
namespace {

bool is_of(std::string_view id, const Check& check) {
  return id.substr(0, id.find('.')) == check.name;
}

size_t subject_width(const Findings& findings) {
  size_t width = 0;
  for (const Finding& finding : findings.all()) width = std::max(width, finding.subject.size());
  return std::min<size_t>(width, 24);
}

std::string line_of(const Finding& finding, size_t width, bool color) {
  // ok green, info plain, warning yellow, error red
  constexpr std::array<std::string_view, 4> kColors = {"\033[32m", "", "\033[33m", "\033[31m"};
  const std::string_view paint = color ? kColors[static_cast<size_t>(finding.severity)] : "";
  std::string text =
      fmt::format("  {}{:<7}{}  {:<{}}  {}\n", paint, to_string(finding.severity),
                  paint.empty() ? "" : "\033[0m", finding.subject, width, finding.message);
  if (!finding.cure.empty())
    text += fmt::format("  {:<7}  {:<{}}  cure: {}\n", "", "", width, finding.cure);
  return text;
}

using Compared = std::map<std::string, std::string>;

void add(Compared& facts, const std::string& name, const std::string& value) {
  if (!value.empty()) facts[printable(name)] = printable(value);
}

void add_device(Compared& compared, const Facts& facts, const RdmaDevice& device) {
  add(compared, device.name + " firmware", device.firmware);
  for (const RdmaPort& port : device.ports) {
    add(compared, port.name() + " rate", port.rate);
    add(compared, port.name() + " state", port.state);
    const Gid* gid = port.ethernet ? choose_gid(port) : nullptr;
    if (gid != nullptr) add(compared, port.name() + " GID index", std::to_string(gid->index));
  }
  if (const PciDevice* pci = facts.pci_device(device.pci_address)) {
    add(compared, device.name + " PCIe speed", pci->link_speed);
  }
}

std::string verdict(const Findings& findings) {
  const auto many = [](size_t count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  const size_t errors = findings.count(Severity::kError);
  const size_t warnings = findings.count(Severity::kWarning);
  if (errors > 0) {
    return fmt::format("Not ready: {} and {}.\n", many(errors, "error"), many(warnings, "warning"));
  }
  if (warnings > 0) return fmt::format("Ready, with {}.\n", many(warnings, "warning"));
  return findings.all().empty() ? "Nothing was examined: this host has no device for it.\n"
                                : "Ready.\n";
}

}  // namespace

std::string to_text(const Findings& findings, TextOptions options) {
  const size_t width = subject_width(findings);
  std::string text;
  for (const Check& check : checks()) {
    bool titled = false;
    for (const Finding& finding : findings.all()) {
      const bool problem = finding.severity >= Severity::kWarning;
      if (options.quiet || problem || !is_of(finding.id, check)) continue;
      if (!titled) text += fmt::format("{}\n", check.name);
      titled = true;
      text += line_of(finding, width, options.color);
    }
  }
  for (const Severity severity : {Severity::kWarning, Severity::kError}) {
    if (findings.count(severity) == 0) continue;
    if (!text.empty()) text += '\n';
    for (const Finding& finding : findings.all()) {
      if (finding.severity == severity) text += line_of(finding, width, options.color);
    }
  }
  if (!text.empty()) text += '\n';
  return text + verdict(findings);
}

nlohmann::json to_json(const Finding& finding) {
  return {{"id", finding.id},
          {"severity", to_string(finding.severity)},
          {"subject", finding.subject},
          {"message", finding.message},
          {"cure", finding.cure}};
}

nlohmann::json to_json(const Findings& findings, const std::string& version) {
  auto list = nlohmann::json::array();
  for (const Finding& finding : findings.all()) list.push_back(to_json(finding));
  return {{"schema_version", kSchemaVersion},
          {"version", version},
          {"worst", to_string(findings.worst())},
          {"findings", list}};
}

Compared comparable(const Facts& facts) {
  Compared compared;
  add(compared, "kernel", facts.software.kernel);
  add(compared, "system", facts.software.os);
  add(compared, "pacecar", facts.settings.version);
  add(compared, "NVIDIA driver", facts.software.nvidia_driver);
  add(compared, "NCCL", facts.software.nccl);
  for (const auto& [governor, cpus] : facts.cpu.governors) add(compared, "CPU governor", governor);
  for (const RdmaDevice& device : facts.rdma) add_device(compared, facts, device);
  for (const Netdev& netdev : facts.netdevs) {
    if (!netdev.up || netdev.name == "lo") continue;
    add(compared, netdev.name + " MTU", std::to_string(netdev.mtu));
  }
  return compared;
}

std::string list_checks() {
  std::string text;
  for (const Check& check : checks()) {
    text += fmt::format("{:<9} {}\n", check.name, check.summary);
    for (const FindingKind& kind : kFindingKinds) {
      if (!is_of(kind.id, check)) continue;
      text += fmt::format("  {:<7}  {:<27}  {}\n", to_string(kind.severity), kind.id, kind.what);
    }
  }
  return text;
}

}  // namespace pacecar::preflight
