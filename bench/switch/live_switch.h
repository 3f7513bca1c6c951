// An Ethernet switch in real time: the frames of its ports pass the switch of the simulated fabric.
//
//   FramePort --> [NIC queue --cable--> switch: admit, mark, trim, queue --cable-->] --> FramePort
//
// Each port is a host of a star-shaped Fabric; its cable has the port's rate each way. A frame
// enters the model at the time of its arrival, and the model's events run at their own times up to
// `now`: a loop that comes late makes frames leave late, and says how late, but does not change
// what happens in the queues.
//
// Addresses are learned; a frame to an unknown or group address is sent to every other port, and
// passes its sender's cable once for each. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "bench/switch/frame_headers.h"
#include "bench/switch/frame_port.h"
#include "transport/base/histogram.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric.h"

namespace pacecar {

// The port of each MAC address, learned from received frames. Bounded: a full table learns nothing
// new, and frames to unknown addresses go to all ports. Thread rule: one thread.

class MacTable {
 public:
  static constexpr size_t kCapacity = 4096;

  MacTable() { ports_.reserve(kCapacity); }

  // An address that has moved is found at its new port.
  void learn(MacNumber address, uint32_t port) {
    if (is_group(address)) return;
    if (const auto known = ports_.find(address); known != ports_.end()) {
      known->second = port;
    } else if (ports_.size() < kCapacity) {
      ports_.emplace(address, port);
    }
  }
  std::optional<uint32_t> find(MacNumber address) const {
    const auto known = ports_.find(address);
    return known == ports_.end() ? std::nullopt : std::optional(known->second);
  }

 private:
  std::unordered_map<MacNumber, uint32_t> ports_;
};

struct LiveSwitchConfig {
  SwitchConfig switches;
  Duration delay;             // of each port's cable, each way
  double loss = 0;            // probability per frame
  Bytes nic_bytes = 4 << 20;  // that wait in front of a sender's cable; dropped beyond
  // DSCP of the frames that go before all others.
  uint8_t control_dscp = 46;
  Duration sample = Duration::from_us(100);  // between two looks at each queue
  uint64_t seed = 1;
};

// A port's counters so far. The samples of its queue, and its longest, are those since the last
// take_counts() and begin_counts().
struct PortCounts {
  FramePortCounters port;
  LinkStats egress;          // of the queue in front of the port, and its cable
  uint64_t nic_dropped = 0;  // frames from the port that its cable's NIC queue had no room for
  Duration paused;           // of that cable, by PFC
  Histogram queue_bytes;     // samples in the switch's own time
};

class LiveSwitch final : public EventSink {
 public:
  // Takes one rate per port; `now` is the begin of its time. Errors: kInvalidArgument.
  static Result<std::unique_ptr<LiveSwitch>> create(std::vector<std::unique_ptr<FramePort>> ports,
                                                    const std::vector<Rate>& rates,
                                                    const LiveSwitchConfig& config, Instant now);

  // Takes what has arrived, runs all that is due until `now`, sends what comes out. False when it
  // did not get through all frames that waited: call it again at once.
  bool poll(Instant now);
  // When poll() is needed even if nothing arrives.
  Instant next_deadline();

  size_t ports() const { return ports_.size(); }
  FramePort& port(size_t index) { return *ports_[index].port; }
  Bytes queue_bytes(size_t port) const { return fabric_->link_stats(egress_of(port)).queue_bytes; }
  Instant now() const { return loop_.now(); }
  FabricCounters counters() const { return fabric_->counters(); }

  PortCounts take_counts(size_t port);
  void begin_counts();
  // How late frames left, in ns, beyond their time in the model.
  const Histogram& lateness() const { return lateness_; }
  // How late frames entered, in ns, because later ones had been served before.
  const Histogram& entry_lateness() const { return entry_lateness_; }

  // Called with the time and each port's queue at every sample; null: nobody.
  class Sampler {
   public:
    virtual ~Sampler() = default;
    virtual void on_sample(Instant time, size_t port, Bytes queue_bytes) = 0;
  };
  void set_sampler(Sampler* sampler) { sampler_ = sampler; }

  void on_event(Instant now, uint32_t what) override;

 private:
  static constexpr size_t kBurst = 64;

  struct Port {
    std::unique_ptr<FramePort> port;
    std::vector<ReceivedFrame> arrived;
    size_t next = 0;  // of `arrived`
    size_t count = 0;
    bool more = false;  // waits behind those
    bool has_output = false;
    uint64_t nic_dropped = 0;
    Histogram queue_bytes;
  };

  LiveSwitch(std::vector<std::unique_ptr<FramePort>> ports, const LiveSwitchConfig& config);

  static LinkId egress_of(size_t port) { return static_cast<LinkId>(2 * port); }
  static LinkId ingress_of(size_t port) { return egress_of(port) + 1; }
  void fetch(Port& port, Instant now);
  Port* earliest(Instant until);
  void enter(uint32_t from, const ReceivedFrame& frame);
  void send_to(uint32_t from, FabricFrame& frame, uint32_t to);
  static OutgoingFrame finish(const RxPacket& packet, Bytes longest, std::vector<uint8_t>& copy);
  void drain(uint32_t index, Instant now);

  LiveSwitchConfig config_;
  EventLoop loop_;
  std::vector<Port> ports_;
  std::unique_ptr<Fabric> fabric_;
  MacTable addresses_;
  EventLoop::TimerId sample_timer_;
  Sampler* sampler_ = nullptr;
  Histogram lateness_;
  Histogram entry_lateness_;
  // Of one burst that is sent.
  std::vector<RxPacket> leaving_;
  std::vector<OutgoingFrame> outgoing_;
  std::vector<std::vector<uint8_t>> changed_;  // what the switch has changed of them
};

}  // namespace pacecar
