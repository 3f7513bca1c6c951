// [transport] and [fabric]: how hosts send, and what switches do.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/sim/link_names.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/spec_reader.h"
#include "cc/host_link.h"
#include "cc/registry.h"
#include "transport/base/return_if_error.h"
#include "transport/base/to_number.h"
#include "transport/engine/soft_port.h"
#include "transport/softnic/paths/path_selector.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

constexpr std::array<std::string_view, 8> kPathPolicies{
    "round-robin", "fixed", "random", "penalty", "recycle", "sticky", "balanced", "reroute"};
constexpr std::array<std::string_view, 2> kSharing{"auto", "off"};
constexpr std::array<std::string_view, 3> kEcnKinds{"off", "step", "red"};
constexpr std::array<std::string_view, 2> kEcnWhen{"enqueue", "dequeue"};

// Defaults, in bandwidth-delay products: marks begin at the first and are certain at the second.
constexpr double kEcnLow = 0.2;
constexpr double kEcnHigh = 0.8;
// Defaults of a switch port's queue, in bandwidth-delay products.
constexpr Bytes kQueueWithTrimming = 1;
constexpr Bytes kQueueWithout = 5;
constexpr double kMostConstant = 1e15;
constexpr uint32_t kMostPaths = 60'000;  // UDP source ports of a host

Bytes share(Bytes bdp, double factor) {
  return static_cast<Bytes>(static_cast<double>(bdp) * factor);
}

// A key that takes true, false or a table: sets `enabled`, and returns the table if it is one.
const SpecValue* read_switch(SpecReader& fabric, std::string_view key, std::string_view example,
                             bool& enabled) {
  const SpecValue* value = fabric.value(key);
  if (value == nullptr) return nullptr;
  enabled = true;
  if (value->table() != nullptr) return value;
  if (const bool* wanted = std::get_if<bool>(&value->value)) {
    enabled = *wanted;
  } else {
    fabric.complain(key, fmt::format("takes true, false, or a table such as {}", example));
  }
  return nullptr;
}

EcnConfig read_ecn(SpecReader& fabric, Bytes bdp) {
  EcnConfig ecn{
      .kind = EcnConfig::Kind::kRed, .low = share(bdp, kEcnLow), .high = share(bdp, kEcnHigh)};
  bool enabled = true;
  const SpecValue* value = read_switch(
      fabric, "ecn", "{low = \"100KB\", high = \"400KB\", max_probability = 0.2}", enabled);
  if (!enabled) ecn.kind = EcnConfig::Kind::kOff;
  if (value == nullptr) return ecn;
  SpecReader reader(*value, "[fabric] ecn");
  ecn.kind = reader.choice("kind", ecn.kind, kEcnKinds);
  ecn.when = reader.choice("when", ecn.when, kEcnWhen);
  ecn.low = reader.bytes("low", ecn.low, bdp);
  const bool step = ecn.kind == EcnConfig::Kind::kStep;
  ecn.high = step ? ecn.low : reader.bytes("high", std::max(ecn.high, ecn.low), bdp);
  if (!step) ecn.max_probability = reader.number("max_probability", 1.0, 0.0, 1.0);
  ecn.host_links = reader.flag("host_links", ecn.host_links);
  if (ecn.high < ecn.low) reader.complain("high", "is below low: marks would end where they begin");
  fabric.add_error(reader.finish());
  return ecn;
}

PfcConfig read_pfc(SpecReader& fabric, Bytes bdp) {
  PfcConfig pfc;
  const SpecValue* value = read_switch(fabric, "pfc", "{alpha = 0.125}", pfc.enabled);
  if (value == nullptr) return pfc;
  SpecReader reader(*value, "[fabric] pfc");
  pfc.alpha = reader.number("alpha", pfc.alpha, 1.0 / 1024, 64.0);
  pfc.headroom = reader.bytes("headroom", pfc.headroom, bdp);
  pfc.resume_offset = reader.bytes("resume_offset", pfc.resume_offset, bdp);
  fabric.add_error(reader.finish());
  return pfc;
}

// The links with policers: all hosts' uplinks or downlinks, or one link by name.
std::vector<LinkId> policed_links(SpecReader& reader, const Topology& topology) {
  const std::string at = reader.text("at", "uplinks");
  std::vector<LinkId> links;
  if (at != "uplinks" && at != "downlinks") {
    const auto link = find_link(topology, at);
    if (link) return {*link};
    reader.complain(
        "at", fmt::format("is '{}', neither uplinks nor downlinks: {}", at, link.error().message));
    return links;
  }
  for (LinkId link = 0; link < 2 * topology.cables.size(); ++link) {
    const NodeId end = at == "uplinks" ? topology.from(link) : topology.to(link);
    if (end < topology.hosts) links.push_back(link);
  }
  return links;
}

// `policer` is a table or a list of tables.
void read_policers(SpecReader& fabric, const SpecContext& context, FabricConfig& config) {
  const SpecValue* value = fabric.value("policer");
  if (value == nullptr) return;
  const SpecList one{*value};
  for (const SpecValue& each : value->list() == nullptr ? one : *value->list()) {
    if (each.table() == nullptr) {
      return fabric.complain("policer",
                             "takes a table such as {rate = \"100G\", burst = \"64KB\", at = "
                             "\"uplinks\"}, or a list of them");
    }
    SpecReader reader(each, "[fabric] policer");
    const Rate rate = reader.rate("rate", Rate());
    const Bytes burst = reader.bytes("burst", 0, context.bdp);
    if (rate == Rate()) reader.complain("rate", "is missing or 0: nothing would pass");
    if (burst == 0) reader.complain("burst", "is missing or 0: no packet would pass");
    for (const LinkId link : policed_links(reader, *context.topology)) {
      config.policers.push_back({.link = link, .rate = rate, .burst = burst});
    }
    fabric.add_error(reader.finish());
  }
}

// Refuses impossible settings of switches.
void check_switches(SpecReader& reader, const SwitchConfig& switches, Bytes packet) {
  const auto check = [&](std::string_view key, Bytes bytes) {
    if (bytes == 0 || bytes >= packet) return;
    reader.complain(key,
                    fmt::format("is {} bytes: a full packet takes {} on the wire", bytes, packet));
  };
  check("queue", switches.queue_bytes);
  check("buffer", switches.buffer_bytes);
  if (switches.pfc.enabled) {
    if (switches.buffer_bytes == 0) {
      reader.complain("pfc", "needs a shared buffer to share: set buffer, such as \"16MiB\"");
    }
    if (switches.queue_bytes > 0 || switches.trimming) {
      reader.complain("pfc", "loses nothing, and queue and trimming do: leave them out");
    }
  } else if (switches.queue_bytes == 0 && switches.buffer_bytes == 0) {
    reader.complain("queue", "is 0: give it a bound, or set that of the whole switch, buffer");
  }
}

void read_switches(SpecReader& reader, bool telemetry, Bytes bdp, SwitchConfig& switches) {
  switches.trimming = reader.flag("trimming", false);
  switches.trim_tail_at_random = reader.flag("trim_tail_at_random", switches.trim_tail_at_random);
  switches.trimmed_bytes = reader.bytes("trimmed", switches.trimmed_bytes);
  switches.buffer_bytes = reader.bytes("buffer", 0, bdp);
  switches.pfc = read_pfc(reader, bdp);
  // With PFC a port's queue has no bound of its own: senders are paused instead.
  const Bytes queue = switches.pfc.enabled ? 0
                      : switches.trimming  ? kQueueWithTrimming * bdp
                                           : kQueueWithout * bdp;
  switches.queue_bytes = reader.bytes("queue", queue, bdp);
  switches.control_queue_bytes = reader.bytes("control_queue", 0, bdp);
  switches.control_weight = reader.whole<uint32_t>("control_weight", 0);
  switches.ecn = read_ecn(reader, bdp);
  switches.telemetry = reader.flag("telemetry", telemetry);
}

// [transport.constants]; the algorithm checks names and ranges.
void read_constants(SpecReader& transport, TransportSpec& spec) {
  const SpecValue* value = transport.table("constants");
  if (value == nullptr) return;
  SpecReader reader(*value, "[transport.constants]");
  for (const SpecEntry& entry : value->table()->entries()) {
    spec.constants.push_back(
        {entry.key, reader.number(entry.key, 0, -kMostConstant, kMostConstant)});
  }
  if (const auto read = reader.finish(); !read) return transport.add_error(read);
  const FlowEnvironment any{.line_rate = Rate::from_gbps(100)};
  const auto made = make_controllers(spec.congestion_control, any, Rate(), spec.constants, 1);
  if (!made) transport.complain("constants", "is wrong: " + made.error().message);
}

// "100G", or "0.5x" of the cables' rate.
void read_nominal_rate(SpecReader& reader, TransportSpec& spec) {
  constexpr double kMost = 1000;
  const SpecValue* value = reader.value("line_rate");
  const std::string* text = value == nullptr ? nullptr : value->string();
  if (text == nullptr || !text->ends_with('x')) {
    spec.line_rate = reader.rate("line_rate", Rate());
    return;
  }
  const auto factor = to_number<double>(std::string_view(*text).substr(0, text->size() - 1));
  if (factor && *factor >= 1 / kMost && *factor <= kMost) {
    spec.line_rate_factor = *factor;
  } else {
    reader.complain("line_rate", fmt::format("is {}: a factor is 0.001x to 1000x", *text));
  }
}

bool needs_telemetry(const RunSpec& run) {
  const auto needs = [](const std::string& name) {
    const auto info = controller_info(name);
    return info && info->needs_telemetry;
  };
  return needs(run.transport.congestion_control) ||
         std::ranges::any_of(run.workload.jobs, needs, &WorkloadJob::congestion_control);
}

}  // namespace

Rate TransportSpec::nominal_rate(Rate cables) const {
  if (line_rate != Rate()) return line_rate;
  if (line_rate_factor == 1) return cables;
  return Rate::from_bps(static_cast<uint64_t>(cables.real_bps() * line_rate_factor));
}

Rate TransportSpec::first_rate_of(Rate nominal) const {
  if (first_rate != Rate() || share == LinkSharing::kAuto) return first_rate;
  return Rate::from_bps(nominal.bps() / kUnseenProcesses);
}

std::string read_congestion_control(SpecReader& reader, const std::string& otherwise) {
  if (!reader.has("cc")) return otherwise;
  const std::vector<std::string_view> names = names_of(controllers());
  return std::string(names[reader.choice("cc", 0, names)]);
}

Result<TransportSpec> read_transport(const SpecValue& value, const HostProfile& hosts) {
  SpecReader reader(value, "[transport]");
  TransportSpec spec;
  spec.congestion_control = read_congestion_control(reader, spec.congestion_control);
  if (reader.has("allocator")) {
    const std::vector<std::string_view> names = names_of(allocators());
    spec.allocator = names[reader.choice("allocator", 0, names)];
  }
  read_constants(reader, spec);
  spec.rate_max = reader.rate("rate_max", Rate());
  spec.share = reader.choice("share", spec.share, kSharing);
  read_nominal_rate(reader, spec);
  spec.first_rate = reader.rate("first_rate", Rate());
  spec.mtu = reader.bytes("mtu", spec.mtu);
  if (spec.mtu < 256 || spec.mtu > 16384) {
    reader.complain("mtu", "is out of range: use 256 to 16384 bytes of payload per packet");
    spec.mtu = TransportSpec().mtu;
  }
  spec.burst = reader.bytes("burst", std::max(spec.mtu, hosts.burst_bytes));
  spec.burst = std::max(spec.burst / spec.mtu, Bytes{1}) * spec.mtu;  // whole packets
  if (spec.burst > SoftPort::kMaxTransmit * spec.mtu) {
    reader.complain("burst", fmt::format("is more than {} packets", SoftPort::kMaxTransmit));
  }
  spec.paths = reader.whole<uint32_t>("paths", spec.paths, 1, kMostPaths);
  spec.path_policy = reader.choice("path_policy", spec.path_policy, kPathPolicies);
  spec.window_packets = reader.whole<uint32_t>("window_packets", 0, 0, wire::kMaxBitmapWords * 64);
  spec.ack_bytes = reader.bytes("ack_bytes", spec.ack_bytes);
  spec.oversubscription = reader.number("oversubscription", spec.oversubscription, 1, 1000);
  spec.base_rtt = reader.duration("base_rtt", spec.base_rtt);
  spec.knows_base_rtt = hosts.ideal() || spec.base_rtt > Duration();
  spec.timeout = reader.duration("timeout", spec.timeout);
  const SpecValue* reordering = reader.value("reordering");
  if (reordering != nullptr && reordering->string() != nullptr && *reordering->string() == "any") {
    spec.reordering = Duration::max();
  } else {
    spec.reordering = reader.duration("reordering", spec.reordering);
  }
  spec.receives_posted = reader.flag("receives_posted", hosts.ideal());
  RETURN_IF_ERROR(reader.finish());
  return spec;
}

Result<Bytes> read_overhead(const SpecValue& value) {
  SpecReader reader(value, "[fabric]");
  const Bytes overhead = reader.bytes("overhead", HostPortConfig().overhead_bytes);
  if (overhead > 1024) reader.complain("overhead", "is more than 1024 bytes per packet");
  if (reader.failed()) return tl::unexpected(reader.finish().error());
  return overhead;
}

Result<FabricConfig> read_fabric(const SpecValue& value, const RunSpec& run,
                                 const SpecContext& context) {
  SpecReader reader(value, "[fabric]");
  FabricConfig config;
  config.hosts.overhead_bytes = reader.bytes("overhead", config.hosts.overhead_bytes);
  // The NIC's data queue holds a whole burst, so that none of it waits in front of the NIC, where
  // acknowledgements and control writes could not pass.
  const Bytes packets = run.transport.burst / run.transport.mtu;
  const Bytes packet = run.transport.mtu + packet_sizes(run, config.hosts.overhead_bytes).overhead;
  if (packets > 1) {
    config.hosts.data_queue_bytes = std::max(config.hosts.data_queue_bytes, packets * packet);
  }
  config.hosts.data_queue_bytes = reader.bytes("host_queue", config.hosts.data_queue_bytes);
  config.hosts.inbox_bytes = reader.bytes("inbox", config.hosts.inbox_bytes, context.bdp);
  config.hosts.send_rate = reader.rate("send_rate", Rate());
  config.hosts.drain_rate = reader.rate("drain_rate", Rate());
  config.hosts.paths = static_cast<uint16_t>(run.transport.paths);
  if (!run.hosts.ideal()) {
    config.hosts.jitter = kHostJitter;
    config.hosts.pause = kHostPause;
  }
  if (run.hosts.joins_packets) config.hosts.burst_bytes = run.hosts.burst_bytes;
  config.hosts.times_arrivals = run.hosts.times_arrivals;
  config.packets = reader.whole("packets", config.packets, 64, 1U << 26);
  config.failover = reader.duration("failover", config.failover);
  read_policers(reader, context, config);
  read_switches(reader, needs_telemetry(run), context.bdp, config.switches);
  check_switches(reader, config.switches, packet);
  if (config.hosts.inbox_bytes < packet) {
    reader.complain("inbox", fmt::format("is too small: a full packet takes {} bytes", packet));
  }
  RETURN_IF_ERROR(reader.finish());
  return config;
}

}  // namespace pacecar
