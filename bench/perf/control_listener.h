// The TCP port of a test's server, at addresses of this host.
//
// Clients are untrusted. The server reads from all that have connected at once, so that none waits
// for another. It refuses, with an error, a client that sends nothing in time or something else
// than the greeting, and, if this host has a cluster key, a client that does not prove it first.
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
  // Receives the reason why a client was refused.
  using OnRefused = std::function<void(const Error&)>;

  // Clients without a greeting; if there are more, the oldest is dropped.
  static constexpr size_t kMaxWaiting = 64;
  static constexpr Duration kGreetingLimit = Duration::from_s(2);

  // Listens at each of these addresses or names of this host. Port 0 takes any free port. Clients
  // must prove() `key`, if it is not empty.
  static Result<ControlListener> open(const std::vector<std::string>& hosts, uint16_t port,
                                      const bootstrap::ClusterKey& key = {});

  // Waits without limit for the next client whose first message is of the type `greeting`.
  Result<Caller> accept(std::string_view greeting, const OnRefused& on_refused = {});

  uint16_t port() const { return port_; }

 private:
  struct Waiting {
    ControlChannel channel;
    Instant deadline;
    CallerProof proof;
  };

  Result<void> listen_at(const std::string& host);
  Result<void> wait() const;
  Result<nlohmann::json> first_message(Waiting& caller, std::string_view greeting) const;
  Result<void> take_connections(const OnRefused& on_refused);
  std::optional<Caller> take_greeted(std::string_view greeting, const OnRefused& on_refused);

  std::vector<FileDescriptor> sockets_;
  uint16_t port_ = 0;
  bootstrap::ClusterKey key_;
  std::list<Waiting> waiting_;  // the oldest first
};

}  // namespace pacecar::perf
