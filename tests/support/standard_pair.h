// Two software NICs whose standard connections the test brings up itself, as verbs programs do.
#pragma once

#include "tests/support/rc_pair.h"

namespace pacecar::test {

struct StandardPair : SoftNicPair {
  explicit StandardPair(SoftNicConfig config = service_config()) : SoftNicPair(config) {}

  static SoftNicConfig service_config() {
    SoftNicConfig config = rc_config();
    config.receive_queues = 2;
    return config;
  }

  Ends join(const QueuePairConfig& config, Duration not_ready_limit = Duration::max(),
            bool reliable = true) {
    Ends ends{};
    for (size_t side = 0; side < 2; ++side) {
      ends[side] = nic(side).create_queue_pair(config).value();
      limit(side, 0, {.rate = Rate::from_gbps(1000), .window = Bytes{1} << 40});
    }
    for (size_t side = 0; side < 2; ++side) {
      const StandardPeer peer{.gid = test_address(static_cast<uint8_t>(2 - side)).ip,
                              .queue_pair = ends[1 - side],
                              .first_psn = kFirstPsn[1 - side],
                              .mtu = 1024,
                              .read_depth = 4,
                              .reliable = reliable};
      PACECAR_CHECK(nic(side).connect_standard(ends[side], peer).has_value());
      nic(side).start_sending(ends[side], {.first_psn = kFirstPsn[side],
                                           .read_depth = 4,
                                           .silence_limit = Duration::from_s(30),
                                           .not_ready_limit = not_ready_limit});
    }
    return ends;
  }
  Ends join() { return join(kUsual); }
  Ends join_unreliably() { return join(kUsual, Duration::max(), false); }

  static ReceiveRequest receive(TestMemory& memory, uint64_t id) {
    return {.id = id,
            .local = memory.bytes.data(),
            .length = memory.bytes.size(),
            .local_key = memory.region.key};
  }
  static WorkRequest send(const TestMemory& memory, Bytes length, uint64_t id) {
    return {.id = id,
            .local = memory.bytes.data(),
            .length = length,
            .local_key = memory.region.key,
            .opcode = Opcode::kSend};
  }

  static constexpr QueuePairConfig kUsual{
      .work_requests = 64, .receives = 16, .service = Service::kStandard};
  // Near the end of the PSNs, so that they wrap.
  static constexpr std::array<uint32_t, 2> kFirstPsn = {0xFFFFFE, 7};
};

}  // namespace pacecar::test
