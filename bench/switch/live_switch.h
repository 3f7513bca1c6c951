// An Ethernet switch in real time: the frames of its ports pass the switch of the simulated fabric.
//
//   FramePort --> [NIC queue --cable--> switch: admit, mark, trim, queue --cable-->] --> FramePort
//
// Each port is a host of a star-shaped Fabric (README.md). Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/switch/frame_headers.h"
#include "bench/switch/frame_port.h"
#include "transport/base/histogram.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric.h"

namespace pacecar {

struct LiveSwitchConfig {
  SwitchConfig switches;
  Duration delay;                            // of each port's cable, each way
  double loss = 0;                           // probability per frame
  Bytes nic_bytes = 4 << 20;                 // of the queue in front of a sender's cable
  uint8_t control_dscp = 46;                 // of the frames that go before all others
  Duration sample = Duration::from_us(100);  // between two looks at each queue
  uint64_t seed = 1;
};

// A port's counters so far. The samples of its queue are those since the last take_counts(), and
// its longest queue (egress.queue_max_bytes) is that since begin_counts().
struct PortCounts {
  FramePortCounters port;
  LinkStats egress;          // of the queue in front of the port, and its cable
  uint64_t nic_dropped = 0;  // frames from the port that its cable's NIC queue had no room for
  Duration paused;           // of that cable, by PFC
  Histogram queue_bytes;     // samples in the switch's own time
};

class LiveSwitch final : public EventSink {
 public:
  // `rates` has one per port; the model's time begins at `now`. Errors: kInvalidArgument.
  static Result<std::unique_ptr<LiveSwitch>> create(std::vector<std::unique_ptr<FramePort>> ports,
                                                    const std::vector<Rate>& rates,
                                                    const LiveSwitchConfig& config, Instant now);

  // Receives frames, runs the model until `now`, sends the frames that leave it. False when frames
  // may still wait in a port: call it again at once.
  bool poll(Instant now);
  // When poll() is needed even if nothing arrives.
  Instant next_deadline();

  size_t ports() const { return ports_.size(); }
  FramePort& port(size_t index) { return *ports_[index].port; }
  Bytes queue_bytes(size_t port) const { return fabric_->link_stats(egress_of(port)).queue_bytes; }
  Instant now() const { return loop_.now(); }
  FabricCounters counters() const { return fabric_->counters(); }

  PortCounts take_counts(size_t port);
  void begin_counts() { fabric_->reset_queue_max(); }
  // How much later than in the model frames left, in ns.
  const Histogram& lateness() const { return lateness_; }
  // How late frames entered the model, in ns, because frames with later times had entered before.
  const Histogram& entry_lateness() const { return entry_lateness_; }

  // Called with the time and the queue of each port at every sample.
  using Sampler = std::function<void(Instant time, size_t port, Bytes queue_bytes)>;
  void set_sampler(Sampler sampler) { sampler_ = std::move(sampler); }

  void on_event(Instant now, uint32_t what) override;

 private:
  static constexpr size_t kBurst = 64;

  struct Port {
    std::unique_ptr<FramePort> port;
    std::vector<ReceivedFrame> arrived;
    size_t next = 0;  // of `arrived`
    size_t count = 0;
    bool more = false;  // more frames may wait behind those
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
  std::unordered_map<MacNumber, uint32_t> port_of_;  // learned from received frames
  EventLoop::TimerId sample_timer_;
  Sampler sampler_;
  Histogram lateness_;
  Histogram entry_lateness_;
  // Of one burst that is sent.
  std::vector<RxPacket> leaving_;
  std::vector<OutgoingFrame> outgoing_;
  std::vector<std::vector<uint8_t>> changed_;  // what the switch has changed of them
};

// The figures of a live switch, of each interval and of the whole time, as text and as JSON.
class SwitchReport {
 public:
  SwitchReport(LiveSwitch& live, Instant begin);

  // Ends the interval that began when the last one ended. Returns its lines, one per port.
  std::string end_interval(Instant now);
  // Of the whole time, up to the last end_interval().
  std::string summary() const;
  nlohmann::json to_json() const;

 private:
  struct Port {
    std::string name;
    PortCounts last;        // since the begin, without samples
    Histogram queue_bytes;  // of the whole time
    Bytes queue_max_bytes = 0;
  };

  nlohmann::json ports_json() const;  // of the whole time

  LiveSwitch& live_;
  Instant begin_;
  Instant end_;
  std::vector<Port> ports_;
  std::vector<nlohmann::json> intervals_;
};

}  // namespace pacecar
