// The records of one rank, in the order of sending. A record arrives when the puts before it are in
// place.
//
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "transport/api/pacecar.hpp"
#include "transport/rma/record.h"

namespace pacecar::rma {

class Inbox {
 public:
  // `places`: kRecords of them, in `memory`; both outlive the inbox.
  Inbox(std::unique_ptr<ReceiveConnection> connection, Record* places, const Memory* memory)
      : connection_(std::move(connection)), places_(places), memory_(memory) {}

  Result<void> open();
  // The next record; nullopt: none yet. Errors: kPeer (also: a message of another size).
  Result<std::optional<Record>> next();

 private:
  Result<void> post(uint32_t place);

  std::unique_ptr<ReceiveConnection> connection_;
  Record* places_;
  const Memory* memory_;
  std::array<Request*, kRecords> requests_{};
  uint32_t oldest_ = 0;
};

}  // namespace pacecar::rma
