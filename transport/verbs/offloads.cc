#include "transport/verbs/offloads.h"

#include <fmt/format.h>

#include <algorithm>

namespace pacecar {
namespace {

constexpr std::array<std::string_view, kOffloads> kNames = {"time_stamps", "rate_limits"};

}  // namespace

Result<OffloadSet> parse_offloads(std::string_view text) {
  OffloadSet set{};
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
    const auto found = std::ranges::find(kNames, name);
    if (found == kNames.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("PACECAR_VERBS_WITHOUT names '{}', which is no offload: there are {}",
                              name, fmt::join(kNames, ", ")));
    }
    set[static_cast<size_t>(found - kNames.begin())] = true;
  }
  return set;
}

Offloads::Offloads(const ibv_device_attr_ex& device, const OffloadSet& unwanted)
    : refused_{}, limits_(device.packet_pacing_caps) {
  for (size_t i = 0; i < kOffloads; ++i) {
    if (unwanted[i]) refuse(static_cast<Offload>(i), "PACECAR_VERBS_WITHOUT names them");
  }
  if (device.completion_timestamp_mask == 0) {
    refuse(Offload::kTimeStamps, "the device has none");
  } else if (device.hca_core_clock == 0) {
    refuse(Offload::kTimeStamps, "the device does not report its clock's frequency");
  }
  if (limits_.qp_rate_limit_max == 0) {
    refuse(Offload::kRateLimits, "the device has none");
  } else if (!ibv_is_qpt_supported(limits_.supported_qpts, IBV_QPT_RC)) {
    refuse(Offload::kRateLimits, "the device has none for RC queue pairs");
  }
}

void Offloads::refuse(Offload which, std::string_view because) {
  if (uses(which)) refused_[static_cast<size_t>(which)] = because;
}

std::string Offloads::text() const {
  std::string used;
  std::string unused;
  for (size_t i = 0; i < kOffloads; ++i) {
    if (refused_[i].empty()) {
      used += fmt::format("{}{}", used.empty() ? "" : ", ", kNames[i]);
    } else {
      unused += fmt::format("; no {}: {}", kNames[i], refused_[i]);
    }
  }
  return fmt::format("offloads: {}{}", used.empty() ? "none" : used, unused);
}

}  // namespace pacecar
