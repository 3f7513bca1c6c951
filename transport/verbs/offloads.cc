#include "transport/verbs/offloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/verbs/handles.h"

namespace pacecar {
namespace {

constexpr std::array<std::string_view, kOffloads> kNames = {"time_stamps", "rate_limits", "calls"};

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

void Offloads::try_calls(ibv_pd* domain, ibv_cq* completions) {
  if (!uses(Offload::kCalls)) return;
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = completions;
  init.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = domain;
  init.send_ops_flags = kPostedOperations;
  const QueuePairHandle made(ibv_create_qp_ex(domain->context, &init));
  if (made == nullptr) {
    refuse(Offload::kCalls, fmt::format("ibv_create_qp_ex: {}", std::strerror(errno)));
  } else if (ibv_qp_to_qp_ex(made.get()) == nullptr) {
    refuse(Offload::kCalls, "the device's driver has none");
  }
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
