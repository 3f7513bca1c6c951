// Receives messages of frames from one peer, in the order of sending. When a message is received,
// all puts that the peer issued before it are done. Receive buffers are reposted in batches: each
// repost costs a control write to the peer.
//
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/link/frame_source.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/fresh_pages.h"

namespace pacecar::fabric {

class Inbox final : public FrameSource {
 public:
  Inbox(std::shared_ptr<Context> context, std::unique_ptr<ReceiveConnection> connection);
  ~Inbox() override;

  // Errors: as register_memory and irecv.
  Result<void> open();
  Result<std::span<const uint8_t>> next() override;
  Result<void> done() override;
  bool turn() override;

 private:
  static constexpr uint32_t kRepostBatch = 4;  // buffers; the peer can use the others meanwhile

  Result<void> post(uint32_t slot);

  const std::shared_ptr<Context> context_;
  std::unique_ptr<ReceiveConnection> connection_;
  OwnPages<uint8_t> pages_{kMaxMessages * kMessageBytes};
  const Memory* memory_ = nullptr;
  std::array<Request*, kMaxMessages> requests_{};
  uint32_t oldest_ = 0;
  uint32_t to_repost_ = 0;                    // buffers before the oldest that are not posted
  std::optional<Result<TestResult>> tested_;  // result of the oldest request
};

}  // namespace pacecar::fabric
