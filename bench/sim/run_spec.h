// Everything that decides the outcome of one simulated run: two runs of the same RunSpec give the
// same result, to the bit. Made from TOML by spec_file.h; executed by run.h. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/workload/workload.h"
#include "cc/registry.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/host_model.h"
#include "transport/sim/topology.h"
#include "transport/softnic/paths/path_selector.h"

namespace pacecar {

// Whether the processes of a host divide its NIC's link by agreement.
enum class LinkSharing : uint8_t { kAuto, kOff };

// The production stack at every host.
struct TransportSpec {
  std::string congestion_control = "pace";
  // The receivers' allocator; empty: the allocator that the senders' algorithms need.
  std::string allocator;
  std::vector<NamedValue> constants;  // of the algorithm, in place of its defaults
  Rate rate_max;                      // PACECAR_RATE_MAX
  LinkSharing share = LinkSharing::kAuto;
  // The nominal rate of hosts' NICs: a rate, or (0) the cables' times a factor.
  Rate line_rate;
  double line_rate_factor = 1;
  // The rate at which a NIC begins. 0: if processes share it without agreement, a fraction of the
  // nominal rate (kUnseenProcesses); else the nominal rate.
  Rate first_rate;
  Bytes mtu = 4096;     // payload of a packet
  Bytes burst = 4096;   // sent at once by a flow, on one path; whole packets
  uint32_t paths = 64;  // that a flow spreads over
  PathPolicy path_policy = PathPolicy::kRoundRobin;
  uint32_t window_packets = 0;  // 0: twice the longest base round trip at line rate
  // The most bytes of a flow per acknowledgement; 0: every packet is acknowledged.
  Bytes ack_bytes = 0;
  // The oversubscription that hosts assume: their links' rate over that of the network's core.
  double oversubscription = 1;
  Duration base_rtt;           // of the run: 0: the longest of the topology
  bool knows_base_rtt = true;  // controllers have it
  Duration timeout;  // an unacknowledged packet is lost after this time; 0: as in production
  // How much later than a packet sent after it one may arrive before it counts as lost; 0: as in
  // production. With Duration::max() only trimming and the timeout reveal losses.
  Duration reordering;
  // Receivers have posted their buffers before the run begins, so that senders hold a CTS when
  // their flow starts; false: they post when the flow starts.
  bool receives_posted = true;

  Rate nominal_rate(Rate cables) const;
  Rate first_rate_of(Rate nominal) const;
  // Whether a flow uses several paths at the same time.
  bool spreads() const {
    return paths > 1 && path_policy != PathPolicy::kFixed && path_policy != PathPolicy::kSticky;
  }
};

enum class FaultKind : uint8_t {
  kCableDown,
  kCableUp,
  kCableRate,
  kCableLoss,
  kHostFrozen,
  kWordLoss,
  kPacketLoss,  // of any packet, at the first switch of its path
};

struct FaultEvent {
  Duration at;
  FaultKind kind{};
  uint32_t target = 0;      // cable, or process
  bool everywhere = false;  // kWordLoss: of all hosts
  Rate rate;                // kCableRate
  double probability = 0;   // kCableLoss, kWordLoss, kPacketLoss
  Duration length;          // kHostFrozen
};

struct SamplingSpec {
  Duration interval = Duration::from_us(1);  // of queues and rates over time; 0: none
  // The time from time 0 that links' utilisation leaves out.
  Duration warm_up;
  size_t points = 2000;  // most samples of a series: the interval doubles as needed
  size_t series = 32;    // most flows and most queues that are sampled: the largest
};

struct RunSpec {
  std::string name;
  HostProfile hosts;
  Topology topology;
  FabricConfig fabric;
  Workload workload;
  TransportSpec transport;
  std::vector<FaultEvent> faults;
  SamplingSpec sampling;
  uint64_t seed = 1;
  // of virtual time; flows not done by then are reported
  Duration time_limit = Duration::from_s(1);
  bool endless = false;   // flows need not be done by then
  std::string pcap;       // file; empty: none
  std::string pcap_link;  // "leaf 0 > host 3"
  std::string trace;      // file of events, one JSON line each; empty: none
};

// Which congestion control, weight and allocator each host of a run has, from its jobs or else from
// the experiment.
struct Algorithms {
  std::vector<std::string> controls;    // by host, as a sender
  std::vector<uint32_t> weights;        // by host, as a sender
  std::vector<std::string> allocators;  // by host, as a receiver; empty: that of its own control
};

// A host that receives under several algorithms has the allocator of the algorithms that take
// grants; the others are granted the line rate. Errors: kInvalidArgument if the jobs of a host need
// two different allocators, or for an unknown algorithm.
Result<Algorithms> algorithms_of(const RunSpec& spec);

}  // namespace pacecar
