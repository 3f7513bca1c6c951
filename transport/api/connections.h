// The two ends of a connection, joined to an engine.
#pragma once

#include <memory>
#include <string>

#include "transport/api/pacecar.hpp"
#include "transport/api/request_pool.h"
#include "transport/base/units.h"
#include "transport/engine/engine.h"

namespace pacecar {

// The NIC of a connection's end. The engine lives as long as any of its connections does.
struct OwnNic {
  std::shared_ptr<Engine> engine;
  std::string name;
  Duration timeout;  // PACECAR_TIMEOUT, for messages to people
  LogSink log;
};

// What both ends have.
struct Attachment {
  OwnNic nic;
  ConnectionId connection = 0;
  std::string peer;
};

// What both kinds of connections, with one lane and with several, tell of themselves and of misuse.
FlowView flow_of(const Attachment& at);
tl::unexpected<Error> not_covered();
Result<void> check_buffers(std::span<const ReceiveBuffer> buffers);
tl::unexpected<Error> tested_again();

// Made with the engine's messenger knowing the connection already.
std::unique_ptr<SendConnection> make_send_connection(Attachment attachment);
std::unique_ptr<ReceiveConnection> make_receive_connection(Attachment attachment);

}  // namespace pacecar
