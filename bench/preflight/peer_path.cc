#include <algorithm>
#include <array>

#include "bench/cli/child.h"
#include "bench/preflight/kernel_probes.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::preflight {
namespace {

// Bytes of IP packets, the largest first: the needs of RDMA MTUs, the MTU of plain Ethernet, and at
// last a size that is small enough for every path.
constexpr std::array<uint64_t, 5> kSizes = {4096 + kRoceHeaders, 2048 + kRoceHeaders, 1500,
                                            1024 + kRoceHeaders, 256 + kRoceHeaders};

struct IpVersion {
  const char* flag;       // of ping
  uint64_t header_bytes;  // of IP and ICMP
};
constexpr std::array<IpVersion, 2> kIpVersions = {{{"-4", 20 + 8}, {"-6", 40 + 8}}};

// Whether one of three packets of this size was answered. Errors: kNotFound (no program `ping`),
// kUnavailable (no address, no route, no permission), kSystem.
Result<bool> ping(const std::string& host, const IpVersion& version, uint64_t ip_bytes) {
  const std::string payload = std::to_string(ip_bytes - version.header_bytes);
  ASSIGN_OR_RETURN(auto child,
                   cli::Child::execute({"ping", version.flag, "-n", "-q", "-c", "3", "-i", "0.2",
                                        "-W", "1", "-M", "do", "-s", payload, "--", host},
                                       {.input = false, .environment = {"LC_ALL=C"}}));
  const cli::ExitStatus status = child.wait();
  child.read();
  if (status.signal == 0 && status.code <= 1) return status.code == 0;  // 1: no answer
  return fail(ErrorCode::kUnavailable, "{}", cli::last_lines(child.errors, 1));
}

}  // namespace

PeerPath probe_peer(const std::string& host) {
  PeerPath path{.host = host, .error = {}};
  for (const IpVersion& version : kIpVersions) {
    const auto arrives = [&](uint64_t size) { return ping(host, version, size).value_or(false); };
    const auto smallest = ping(host, version, kSizes.back());
    if (!smallest) {  // the host may have an address of the other version only
      if (path.error.empty()) path.error = smallest.error().message;
      continue;
    }
    path.error.clear();
    if (*smallest) {  // the larger ones; later it need not be answered again
      const auto last = kSizes.end() - 1;
      const auto found = std::find_if(kSizes.begin(), last, arrives);
      path.largest_bytes = *found;
      if (found != kSizes.begin()) path.failed_bytes = *(found - 1);
    }
    break;
  }
  return path;
}

}  // namespace pacecar::preflight
