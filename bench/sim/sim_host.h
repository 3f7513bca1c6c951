// One host of an experiment, or one of several processes of a host: the production NIC, messages
// and poll loop on a port of a simulated fabric. It runs when a packet arrives, when its port takes
// packets again, when one of its timers is due, and after wake(); a host with a profile then takes
// its turn later (HostModel). Payload is a length only: every
// host registers the same range of addresses, and no memory is there. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/sim/run_spec.h"
#include "transport/base/prng.h"
#include "transport/base/result.h"
#include "transport/engine/poll_loop.h"
#include "transport/engine/soft_port.h"
#include "transport/message/messenger.h"
#include "transport/share/share_link.h"
#include "transport/share/share_table.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric.h"
#include "transport/softnic/soft_nic.h"

namespace pacecar {

class SimHost;

// What the processes of a simulated host share: its NIC's share table. Real processes poll the
// table; here a process that has taken a step lets the others read it.
struct SharedNic {
  // The time from a change to another process's poll that sees it.
  static constexpr Duration kPoll = Duration::from_ns(100);

  ShareTable table{};
  std::vector<SimHost*> processes;
};

struct SimHostConfig {
  uint32_t number = 0;  // of the process
  std::string congestion_control;
  std::string allocator;
  uint32_t weight = 1;           // of the flows that it sends
  SharedNic* shared = nullptr;   // outlives the host; null: processes do not share
  std::span<RxPacket> received;  // SoftPort's buffer for a burst, which all hosts share
  uint32_t flows = 0;            // to and from other hosts
  uint32_t connections = 0;      // of the direction that has more
  uint32_t window_packets = 0;
  uint64_t seed = 0;
  bool report_steps = false;
};

class SimHost final : public EventSink {
 public:
  // Called after every step in which messages were sent or received completely; with
  // SimHostConfig::report_steps after every step.
  using Listener = std::function<void(uint32_t host, Instant now, bool messages)>;

  // Errors: kInvalidArgument for an unknown congestion control or allocator.
  static Result<std::unique_ptr<SimHost>> create(EventLoop& loop, Fabric& fabric,
                                                 const RunSpec& spec, const SimHostConfig& config,
                                                 Listener listener);

  // Called when something was posted: the host takes a step in this instant.
  void wake() { loop_.arm(timer_, loop_.now()); }

  Messenger& messenger() { return *messenger_; }
  const SoftNic& nic() const { return nic_; }
  uint32_t number() const { return number_; }
  NicIdentity identity() const;
  // Where all messages are sent from and received.
  const MemoryRegion& payload() const { return payload_; }

  void on_event(Instant now, uint32_t what) override;

 private:
  SimHost(EventLoop& loop, Fabric& fabric, const RunSpec& spec, const SimHostConfig& config,
          Listener listener);

  void poll_share(Instant now);
  void count_messages();

  EventLoop& loop_;
  HostPort& io_;
  Listener listener_;
  uint32_t number_;
  bool report_steps_;
  EventLoop::TimerId timer_;
  Prng random_;
  SoftNic nic_;
  SoftPort port_;
  MemoryRegion payload_;
  SharedNic* shared_;
  ShareProcess process_;
  std::unique_ptr<ShareMember> member_;  // where the NIC is shared
  std::unique_ptr<Messenger> messenger_;
  std::optional<PollLoop> poll_loop_;
  std::optional<HostModel> model_;  // none: an ideal host
  EventLoop::TimerId turn_ = 0;     // of a host with a model
  uint64_t messages_ = 0;
  uint64_t new_messages_ = 0;  // by the last turn
};

}  // namespace pacecar
