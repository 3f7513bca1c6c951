// Names and lists that users write: NICs, rails, DPDK devices, sizes of flows. The first byte
// chooses. An accepted name or list is not empty and within its bounds.
#include <array>

#include "bench/workload/flow_sizes.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/engine/open/nic_list.h"
#include "transport/io/dpdk/device.h"

namespace pacecar::names_fuzz {
namespace {

void check_nics(std::string_view text) {
  static const std::array<NicCandidate, 4> candidates{
      {{.kind = NicKind::kVerbs, .device = "mlx5_0"},
       {.kind = NicKind::kVerbs, .device = "mlx5_1"},
       {.kind = NicKind::kSoftUdp, .device = "eth0"},
       {.kind = NicKind::kSoftUdp, .device = "lo", .loopback = true}}};
  const auto chosen = choose_nics(text, candidates);
  if (chosen) {
    PACECAR_CHECK(!chosen->empty());
    for (const NicGroup& group : *chosen) PACECAR_CHECK(!group.empty());
  }
  static_cast<void>(rail_of(text, candidates[0]));
}

void check_device(std::string_view text) {
  const size_t comma = text.find(',');
  const auto device = parse_dpdk_device(
      text.substr(0, comma), comma == text.npos ? std::string_view() : text.substr(comma + 1));
  if (!device) return;
  PACECAR_CHECK(!device->name.empty());
  PACECAR_CHECK(!device->vlan || *device->vlan < 4096);
  static_cast<void>(device->is_pci());
  static_cast<void>(device->driver());
  static_cast<void>(device->argument("id"));
}

void check_sizes(std::string_view text) {
  const auto sizes = FlowSizes::make(text);
  if (!sizes) return;
  PACECAR_CHECK(sizes->mean() >= 0);
  PACECAR_CHECK(sizes->at(0) >= 1);
  PACECAR_CHECK(sizes->at(0.5) <= sizes->at(0.999));
}

}  // namespace

FUZZ_TARGET(names) {
  fuzz::Input input(data, size);
  const uint8_t choice = input.u8();
  const std::string_view text = input.text();
  switch (choice % 3) {
    case 0: check_nics(text); break;
    case 1: check_device(text); break;
    default: check_sizes(text);
  }
  return 0;
}

}  // namespace pacecar::names_fuzz
