// The NIC conformance suite for two NICs through libibverbs, on the machine's first RDMA device
// that is up. Skipped where there is none; deploy/lab/run has one.
#include <stdexcept>

#include "tests/conformance/nic_conformance.h"
#include "tests/support/turned_nics.h"
#include "tests/support/verbs_port.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar::nic_verbs_test {
namespace {

using test::monotonic_now;

// An emulated machine may stand still for some hundred milliseconds where its host is busy.
constexpr Duration kSilenceLimit = Duration::from_ms(2000);

std::unique_ptr<VerbsNic> open_nic(const VerbsPortInfo& port, uint32_t paths) {
  auto nic = VerbsNic::open({.device = port.device,
                             .port = port.port,
                             .flows = 4,
                             .queue_pairs = 16,
                             .regions = 32,
                             .paths = paths,
                             .silence_limit = kSilenceLimit},
                            monotonic_now());
  if (!nic) throw std::runtime_error(nic.error().message);
  return std::move(*nic);
}

NicWorld make_world(uint32_t paths) {
  const auto port = test::active_verbs_port();
  if (!port) return {.missing = port.error().message};
  const auto world = std::make_shared<test::TurnedNics<VerbsNic>>();
  world->nics = {open_nic(*port, paths), open_nic(*port, paths)};
  return {.nics = {world->nics[0].get(), world->nics[1].get()},
          .step = [world] { return world->step(); },
          .next_deadline = next_deadline_of(*world->nics[0], *world->nics[1]),
          .owner = world};
}

const auto kCases = testing::Values(NicCase{"one_lane", [] { return make_world(1); }},
                                    NicCase{"four_lanes", [] { return make_world(4); }});
INSTANTIATE_TEST_SUITE_P(Verbs, NicConformance, kCases, nic_case_name);
INSTANTIATE_TEST_SUITE_P(Verbs, NicReads, kCases, nic_case_name);

}  // namespace
}  // namespace pacecar::nic_verbs_test
