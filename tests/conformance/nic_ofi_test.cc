// The NIC conformance suite for two NICs in this process on libfabric's providers. A provider that
// this machine lacks is skipped.
#include <stdexcept>

#include "tests/conformance/nic_conformance.h"
#include "tests/support/monotonic_now.h"
#include "tests/support/turned_nics.h"
#include "transport/ofi/ofi_nic.h"

namespace pacecar::nic_ofi_test {
namespace {

using test::monotonic_now;

struct Kind {
  const char* provider = "";
  const char* domain = "";
  uint32_t paths = 1;
  std::optional<OfiNotification> notification;
};
// No case waits for it.
constexpr Duration kSilence = Duration::from_s(10);

std::unique_ptr<OfiNic> open_nic(const Kind& kind) {
  auto provider = choose_ofi_provider(kind.provider, kind.domain);
  if (!provider) throw std::runtime_error(provider.error().message);
  auto nic = OfiNic::open({.name = std::string("ofi:") + kind.provider,
                           .flows = 4,
                           .queue_pairs = 16,
                           .regions = 32,
                           .paths = kind.paths,
                           .silence_limit = kSilence,
                           .notification = kind.notification},
                          std::move(*provider), monotonic_now());
  if (!nic) throw std::runtime_error(nic.error().message);
  return std::move(*nic);
}

NicWorld make_world(const Kind& kind) {
  if (auto there = choose_ofi_provider(kind.provider, kind.domain); !there) {
    return {.missing = there.error().message};
  }
  const auto world = std::make_shared<test::TurnedNics<OfiNic>>();
  world->nics = {open_nic(kind), open_nic(kind)};
  return {.nics = {world->nics[0].get(), world->nics[1].get()},
          .lost_memory_breaks = true,
          .step = [world] { return world->step(); },
          .next_deadline = next_deadline_of(*world->nics[0], *world->nics[1]),
          .owner = world};
}

NicCase make_case(const char* name, const Kind& kind) {
  return {name, [kind] { return make_world(kind); }};
}

INSTANTIATE_TEST_SUITE_P(
    Ofi, NicConformance,
    testing::Values(
        make_case("tcp", {"tcp", "lo"}), make_case("tcp_four_paths", {"tcp", "lo", 4}),
        make_case("tcp_notify_after_write", {"tcp", "lo", 2, OfiNotification::kAfterWrite}),
        make_case("tcp_notify_after_delivery", {"tcp", "lo", 2, OfiNotification::kAfterDelivery}),
        make_case("rxd", {"udp;ofi_rxd", "lo"}), make_case("verbs", {"verbs;ofi_rxm", ""}),
        make_case("verbs_four_paths", {"verbs;ofi_rxm", "", 4}),
        make_case("verbs_notify_after_delivery",
                  {"verbs;ofi_rxm", "", 1, OfiNotification::kAfterDelivery})),
    nic_case_name);

}  // namespace
}  // namespace pacecar::nic_ofi_test
