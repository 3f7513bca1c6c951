// The TCP port of a test's server, at addresses of this host.
//
// Strangers come too. All who have connected are heard at once, so that nobody waits for another;
// who says nothing in time, or anything but the greeting, is told so and sent away. Where this host
// has a cluster key, so is who does not prove that he has it, before his greeting.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/perf/control_channel.h"
#include "bench/perf/control_proof.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar::perf {

struct Caller {
  ControlChannel channel;
  nlohmann::json greeting;
};

class ControlListener {
 public:
  // Gets the reason why a stranger was rejected.
  using OnStranger = std::function<void(const Error&)>;

  // without a greeting; beyond that the oldest is dropped
  static constexpr size_t kMaxWaiting = 64;
  static constexpr Duration kGreetingLimit = Duration::from_s(2);

  // At each of these addresses, names allowed: those of this host. Port 0 takes any free port.
  // Clients prove() `key`, or do not where it is none.
  static Result<ControlListener> open(const std::vector<std::string>& hosts, uint16_t port,
                                      const bootstrap::ClusterKey& key = {});

  // Waits without limit for the next whose first message is of the type `greeting`.
  Result<Caller> accept(std::string_view greeting, const OnStranger& on_stranger = {});

  uint16_t port() const { return port_; }

 private:
  struct Waiting {
    ControlChannel channel;
    Instant deadline;
    CallerProof proof;
  };

  Result<void> listen_at(const std::string& host);
  Result<void> listen_at_all(const std::vector<std::string>& hosts);
  Result<void> wait() const;
  Result<nlohmann::json> first_message(Waiting& caller, std::string_view greeting) const;
  Result<void> take_connections(const OnStranger& on_stranger);
  std::optional<Caller> take_greeted(std::string_view greeting, const OnStranger& on_stranger);

  std::vector<FileDescriptor> sockets_;
  uint16_t port_ = 0;
  bootstrap::ClusterKey key_;
  std::list<Waiting> waiting_;  // the oldest first
};

}  // namespace pacecar::perf
