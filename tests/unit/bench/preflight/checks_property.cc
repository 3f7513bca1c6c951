// For any contents of a host's files, preflight returns findings that can be printed and parsed.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/preflight/checks.h"
#include "bench/preflight/kernel_probes.h"
#include "bench/preflight/read_facts.h"
#include "bench/preflight/report.h"
#include "tests/support/fake_host.h"
#include "transport/base/prng.h"

namespace pacecar::preflight::checks_property {
namespace {

std::string random_bytes(Prng& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.next_u64());
  return bytes;
}

// Damaged contents of a file.
std::string damage(Prng& random, const std::string& good) {
  constexpr size_t kLarge = HostTree::kMaxFile + 100;
  std::string bytes = good;
  switch (random.below(6)) {
    case 0: return "";
    case 1: return random_bytes(random, 1 + random.below(200));
    case 2: return random_bytes(random, kLarge);
    case 3: return good.substr(0, random.below(good.size() + 1));
    case 4: return good + good + "\n18446744073709551616 -1 0x 99999999999999999999:-/,";
    default:
      if (!bytes.empty()) bytes[random.below(bytes.size())] = static_cast<char>(random.next_u64());
      return bytes;
  }
}

void spoil(FakeHost& host, Prng& random, double share) {
  for (const std::filesystem::path& path : host.files()) {
    if (!random.chance(share)) continue;
    const std::string name = std::filesystem::relative(path, host.root()).string();
    const std::string good = host.tree().bytes(name).value_or("");
    switch (random.below(8)) {
      case 0: host.remove(name); break;
      case 1: host.folder(name); break;
      case 2:
        host.link(name, name);  // a link to itself
        break;
      default: host.file(name, damage(random, good));
    }
  }
}

void check_output(const Findings& findings) {
  const auto printable = [](char c) { return (c >= ' ' && c <= '~') || c == '\n'; };
  RC_ASSERT(std::ranges::all_of(to_text(findings, {}), printable));
  const std::string json = to_json(findings, "1").dump();
  RC_ASSERT(nlohmann::json::parse(json)["findings"].size() == findings.all().size());
  for (const Finding& finding : findings.all()) {
    RC_ASSERT(finding.message.find('\n') == std::string::npos);
  }
}

RC_GTEST_PROP(Preflight, AnyFileContentsGivePrintableFindings, (uint64_t seed)) {
  Prng random(seed);
  FakeHost host;
  constexpr void (*kHosts[])(FakeHost&) = {make_mlx5_host, make_infiniband_host, make_rxe_host};
  kHosts[random.below(std::size(kHosts))](host);
  spoil(host, random, random.chance(0.5) ? 1.0 : 0.1);
  check_output(host.findings());
}

RC_GTEST_PROP(Preflight, AnyDeviceNamesGivePrintableFindings, (uint64_t seed)) {
  Prng random(seed);
  FakeHost host;
  make_mlx5_host(host);
  for (const char* folder : {"sys/class/infiniband", "sys/class/infiniband_verbs", "sys/class/net",
                             "sys/bus/pci/devices", "sys/devices/system/node"}) {
    std::string name = random_bytes(random, 1 + random.below(40));
    std::ranges::replace_if(
        name, [](char c) { return c == '/' || c == '\0'; }, ';');
    if (name == "." || name == "..") continue;
    host.file(std::string(folder) + "/" + name + "/ports/1/state", "4: ACTIVE\n");
  }
  check_output(host.findings());
}

RC_GTEST_PROP(Preflight, AnyPciConfigurationAndPfcAnswerIsParsedSafely, (uint64_t seed)) {
  Prng random(seed);
  std::string config = config_with_acs(0x1f);
  for (int i = 0; i < 20; ++i) {
    config[0x100 + random.below(0x60)] = static_cast<char>(random.next_u64());
  }
  acs_state(config.substr(0, random.below(config.size() + 1)));
  const std::string answer = random_bytes(random, random.below(200));
  parse_pfc(std::as_bytes(std::span(answer)));
}

}  // namespace
}  // namespace pacecar::preflight::checks_property
