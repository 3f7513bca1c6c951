// The two ends of a connection on an engine. Thread rule: as for the connections (pacecar.hpp).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/api/memory.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/units.h"
#include "transport/engine/engine.h"
#include "transport/engine/open/own_link.h"
#include "transport/message/message_request.h"
#include "transport/wire/subnet.h"

namespace pacecar {

// The requests of one connection, up to a fixed number. Memory is allocated only when more are
// taken at once than ever before, so that many idle connections take little memory.
template <typename Request>
class RequestPool {
 public:
  explicit RequestPool(uint32_t size) : size_(size) {}

  // A pending request; nullptr when all are in use.
  Request* take() {
    Request* request = nullptr;
    if (!free_.empty()) {
      request = free_.back();
      free_.pop_back();
    } else if (requests_.size() < size_) {
      request = &requests_.emplace_back();
    } else {
      return nullptr;
    }
    request->set(MessageRequest::State::kPending);
    return request;
  }
  void give_back(Request* request) {
    request->set(MessageRequest::State::kFree);
    free_.push_back(request);
  }
  size_t taken() const { return requests_.size() - free_.size(); }

 private:
  std::deque<Request> requests_;  // a deque, so that requests do not move
  std::vector<Request*> free_;
  uint32_t size_;
};

// The NIC of a connection's end. The engine exists at least as long as its connections.
struct OwnNic {
  std::shared_ptr<Engine> engine;
  std::string name;  // "soft:udp:eth0"
  Duration timeout;  // PACECAR_TIMEOUT, for error texts
  LogSink log;
  size_t member = 0;        // index among its device's NICs, and of its region of a Memory
  Subnet subnet;            // of its address
  uint64_t speed_mbps = 0;  // as NicInfo has it
};

// State common to both ends.
struct Attachment {
  OwnNic nic;
  Direction direction = Direction::kSend;
  ConnectionId connection = 0;
  std::string peer;
  size_t device = 0;  // the NIC's number in Context::nics

  // Calls a function of the messenger, or its Lanes, for this connection, under the engine's lock.
  template <typename Function, typename... Arguments>
  auto call(Function function, const Arguments&... arguments) const {
    return nic.engine->exclusively([&](Messenger& messenger) {
      if constexpr (std::invocable<Function, Lanes&, ConnectionId, Arguments...>) {
        return (messenger.lanes(direction).*function)(connection, arguments...);
      } else {
        return (messenger.*function)(connection, arguments...);
      }
    });
  }
  std::string own_trouble() const {
    return pacecar::own_trouble(nic.name, nic.engine->address(), call(&Lanes::peer_address));
  }
  // For people: "send to", "receive from".
  std::string_view verb() const {
    return direction == Direction::kSend ? "send to" : "receive from";
  }
};

// Closes a connection and sends its close word. `completed_slots`: as for Messenger::close_receive.
void close_send(Engine& engine, ConnectionId connection);
void close_receive(Engine& engine, ConnectionId connection,
                   std::optional<uint64_t> completed_slots = std::nullopt);

// Forgets a receiving connection whose answer has not left this process.
void withdraw(Engine& engine, ConnectionId connection);

// Reports, results and misuse errors common to connections with one lane and with several.
FlowView flow_of(const Attachment& at);
inline void fill_result(const MessageRequest& request, TestResult& result) {
  result.done = true;
  result.count = request.count;
  std::copy_n(request.sizes.begin(), request.count, result.sizes.begin());
}
inline bool usable(const Attachment& at, const void* data, size_t size, const Memory* memory) {
  return size == 0 ||
         (memory != nullptr && memory->nic() == at.device && memory->covers(data, size));
}
tl::unexpected<Error> not_usable(const Attachment& at, const Memory* memory);
Result<void> check_buffers(const Attachment& at, std::span<const ReceiveBuffer> buffers);
tl::unexpected<Error> tested_again();

// The engine's messenger must have the connection already.
std::unique_ptr<SendConnection> make_send_connection(Attachment attachment,
                                                     const ConnectOptions& options);
std::unique_ptr<ReceiveConnection> make_receive_connection(Attachment attachment);

}  // namespace pacecar
