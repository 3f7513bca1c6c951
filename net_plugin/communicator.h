// A communicator of NCCL, from init to finalize, and the process's Context, which all share. A
// process has one Context, opened by the first init and destroyed by the last finalize, once no
// listener and no end of a connection holds it (comm.h). A later init opens a new one. NCCL calls
// connect() until the connection is there, each time with the same copy of the listener's handle.
// The attempt is found by the address of that copy, which NCCL keeps for all calls of one attempt,
// and by its bytes, because NCCL reuses the memory of attempts that it has given up. An attempt
// that was not called for PACECAR_CONNECT_TIMEOUT is abandoned. Hints: a communicator has the
// weight that PACECAR_WEIGHT had at its init. The NICs expect as many senders as the communicator
// with the most senders, as it is not known which communicators work at the same time. All packets
// have the traffic class of the first communicator. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "net_plugin/comm.h"
#include "transport/api/pacecar.hpp"
#include "transport/base/params.h"

namespace pacecar::plugin {

class Communicator {
 public:
  Communicator(std::shared_ptr<Context> context, const Params& params)
      : context_(std::move(context)),
        weight_(params.weight),
        connect_timeout_(params.connect_timeout.ns()) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Result<std::unique_ptr<ListenComm>> listen(size_t nic) const;
  // `handle` is NCCL's copy of a handle. An empty pointer means "not yet, call again".
  Result<std::unique_ptr<SendConnection>> connect(size_t nic, const void* handle);
  void expect(uint32_t senders);  // Peers that may send to us at once; 0: unknown. Cheap.
  // Logs it if data packets do not have this traffic class, the same one once.
  void check_traffic_class(std::optional<uint32_t> wanted);

  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  struct Attempt {
    const void* address;
    size_t nic;
    std::array<uint8_t, Handle::kBytes> bytes;
    auto operator<=>(const Attempt&) const = default;
  };
  struct Calls {
    std::unique_ptr<Connecting> connecting;
    std::chrono::steady_clock::time_point last;
  };

  std::shared_ptr<Context> context_;
  const uint32_t weight_;
  const std::chrono::nanoseconds connect_timeout_;
  std::atomic<uint32_t> reported_class_{~0U};  // by check_traffic_class; at first none
  std::mutex mutex_;                           // guards attempts_
  std::map<Attempt, Calls> attempts_;
};

// The IP header's traffic class byte without its ECN bits, which applications must not set.
// nullopt: none is requested, or an invalid one, which is logged.
std::optional<uint32_t> checked_traffic_class(int given);
// Logs it if the data packets of `context` do not have the traffic class `wanted`.
void check_traffic_class(const Context& context, std::optional<uint32_t> wanted);

// Joins the process's Context, and opens it when this is the first communicator. `traffic_class` is
// of data packets, unless PACECAR_TC is set; nullopt: none requested.
Result<std::unique_ptr<Communicator>> open_communicator(std::optional<uint32_t> traffic_class);
void close_communicator(std::unique_ptr<Communicator> communicator);

// Bonds these NICs of the open Context, and of every later one. Returns the bond's number.
Result<size_t> make_bond(std::span<const int> nics);

// Why NCCL may not merge these NICs; nullptr: it may. NCCL 2.29 merges all NICs that are not on
// PCI, finds no path to the merged NIC, and does not start. It also merges NICs of one device, or
// of two kinds, of which peers may lack one. Once a merge is refused, it uses the NICs one by one.
const char* flaw_of_merge(std::span<const NicInfo> nics);

// The Context of the open communicators; nullptr when there are none.
std::shared_ptr<Context> current_context();

}  // namespace pacecar::plugin
