// The two ends of a connection, joined to an engine.
#pragma once

#include <memory>
#include <string>

#include "transport/api/pacecar.hpp"
#include "transport/api/request_pool.h"
#include "transport/base/units.h"
#include "transport/engine/engine.h"

namespace pacecar {

// What both ends have. The engine lives as long as any of its connections does.
struct Attachment {
  std::shared_ptr<Engine> engine;
  ConnectionId connection = 0;
  std::string peer;
  Duration timeout;  // PACECAR_TIMEOUT, for messages to people
};

// Made with the engine's messenger knowing the connection already.
std::unique_ptr<SendConnection> make_send_connection(Attachment attachment);
std::unique_ptr<ReceiveConnection> make_receive_connection(Attachment attachment);

}  // namespace pacecar
