// AsyncEvents: a device's events: ports that go down and up, queue pairs that fail, the device's
// own failure. They are counted, logged and acknowledged.
//
// Thread rule: one thread at a time; the file descriptor never changes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "transport/base/log.h"
#include "transport/base/result.h"

namespace pacecar {

struct AsyncEventCounts {
  uint64_t port_errors = 0;
  uint64_t port_active = 0;
  uint64_t address_changes = 0;  // of GID, LID, P_Key or subnet manager
  uint64_t queue_pair_errors = 0;
  uint64_t device_fatal = 0;
  uint64_t others = 0;
};

class AsyncEvents {
 public:
  struct Event {
    enum class Kind : uint8_t { kNone, kQueuePairFailed, kReceivedAll, kDeviceFailed };
    Kind kind = Kind::kNone;
    uint32_t queue_pair = 0;  // the device's number
    ibv_event_type type{};
  };

  AsyncEvents(ibv_context* context, std::string device, uint32_t port, LogSink log);
  // Makes wait_fd() non-blocking.
  Result<void> set_up();

  // The next event that concerns queue pairs; false: none.
  bool next(Event* event);
  int wait_fd() const { return context_->async_fd; }
  const AsyncEventCounts& counts() const { return counts_; }

 private:
  Event take(const ibv_async_event& event);
  void log(LogLevel level, ibv_event_type type, const char* meaning) const;

  ibv_context* context_;
  std::string device_;
  uint32_t port_;
  LogSink log_;
  AsyncEventCounts counts_;
};

}  // namespace pacecar
