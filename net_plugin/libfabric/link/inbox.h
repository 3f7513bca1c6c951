// The messages of frames that come from one peer, in the order of their sending. Each is there when
// the puts before it are in place. Buffers are given back several at a time: each time costs a word
// to the peer.
//
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>

#include "net_plugin/libfabric/core/frame.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/fresh_pages.h"

namespace pacecar::fabric {

class Inbox {
 public:
  Inbox(std::shared_ptr<Context> context, std::unique_ptr<ReceiveConnection> connection);
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Errors: as register_memory and irecv.
  Result<void> open();
  // The next message, until done() is called; empty: none yet. Errors: kPeer.
  Result<std::span<const uint8_t>> next();
  Result<void> done();
  // Lends the caller's thread to the NIC; false: there is a message to be taken first.
  bool turn();
  size_t nic() const { return connection_->nic(); }
  std::string peer() const { return connection_->peer(); }

 private:
  static constexpr uint32_t kGivenBack = 8;  // at a time; the peer has room for the others

  Result<void> post(uint32_t place);

  const std::shared_ptr<Context> context_;
  std::unique_ptr<ReceiveConnection> connection_;
  OwnPages<uint8_t> pages_{kMaxRequests * kMessageBytes};
  const Memory* memory_ = nullptr;
  std::array<Request*, kMaxRequests> requests_{};
  uint32_t oldest_ = 0;
  uint32_t taken_ = 0;                        // the places before the oldest that are not posted
  std::optional<Result<TestResult>> tested_;  // of the oldest
};

}  // namespace pacecar::fabric
