// [transport] and [fabric]: how hosts send, and what switches do.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/sim/spec_parts.h"
#include "bench/sim/spec_reader.h"
#include "cc/registry.h"
#include "transport/softnic/path_selector.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

constexpr std::array<std::string_view, 5> kPathPolicies{"round-robin", "fixed", "random", "penalty",
                                                        "recycle"};
constexpr std::array<std::string_view, 3> kEcnKinds{"off", "step", "red"};
constexpr std::array<std::string_view, 2> kEcnWhen{"enqueue", "dequeue"};

// Marks begin and are certain at these shares of the bandwidth-delay product, unless said.
constexpr double kEcnLow = 0.2;
constexpr double kEcnHigh = 0.8;
// Of the queue of a switch port, in bandwidth-delay products, unless said.
constexpr Bytes kQueueWithTrimming = 1;
constexpr Bytes kQueueWithout = 5;

Bytes share(Bytes bdp, double factor) {
  return static_cast<Bytes>(static_cast<double>(bdp) * factor);
}

EcnConfig read_ecn(SpecReader& fabric, Bytes bdp) {
  EcnConfig ecn{
      .kind = EcnConfig::Kind::kRed, .low = share(bdp, kEcnLow), .high = share(bdp, kEcnHigh)};
  const SpecValue* value = fabric.value("ecn");
  if (value == nullptr) return ecn;
  if (const bool* wanted = std::get_if<bool>(&value->value)) {
    if (!*wanted) ecn.kind = EcnConfig::Kind::kOff;
    return ecn;
  }
  if (value->table() == nullptr) {
    fabric.complain("ecn",
                    "takes true, false, or a table such as {low = \"100KB\", high = "
                    "\"400KB\", max_probability = 0.2}");
    return ecn;
  }
  SpecReader reader(*value->table(), "[fabric] ecn", value->place);
  ecn.kind =
      static_cast<EcnConfig::Kind>(reader.choice("kind", static_cast<size_t>(ecn.kind), kEcnKinds));
  ecn.when =
      static_cast<EcnConfig::When>(reader.choice("when", static_cast<size_t>(ecn.when), kEcnWhen));
  ecn.low = reader.bytes("low", ecn.low, bdp);
  const bool step = ecn.kind == EcnConfig::Kind::kStep;
  ecn.high = step ? ecn.low : reader.bytes("high", std::max(ecn.high, ecn.low), bdp);
  if (!step) ecn.max_probability = reader.number("max_probability", 1.0, 0.0, 1.0);
  if (ecn.high < ecn.low) reader.complain("high", "is below low: marks would end where they begin");
  fabric.keep(reader.finish());
  return ecn;
}

PfcConfig read_pfc(SpecReader& fabric, Bytes bdp) {
  PfcConfig pfc;
  const SpecValue* value = fabric.value("pfc");
  if (value == nullptr) return pfc;
  if (const bool* wanted = std::get_if<bool>(&value->value)) {
    pfc.enabled = *wanted;
    return pfc;
  }
  if (value->table() == nullptr) {
    fabric.complain("pfc", "takes true, false, or a table such as {alpha = 0.125}");
    return pfc;
  }
  SpecReader reader(*value->table(), "[fabric] pfc", value->place);
  pfc.enabled = true;
  pfc.alpha = reader.number("alpha", pfc.alpha, 1.0 / 1024, 64.0);
  pfc.headroom = reader.bytes("headroom", pfc.headroom, bdp);
  pfc.resume_offset = reader.bytes("resume_offset", pfc.resume_offset, bdp);
  fabric.keep(reader.finish());
  return pfc;
}

void read_switches(SpecReader& reader, bool telemetry, Bytes bdp, SwitchConfig& switches) {
  switches.trimming = reader.flag("trimming", false);
  switches.trim_tail_at_random = reader.flag("trim_tail_at_random", switches.trim_tail_at_random);
  switches.trimmed_bytes = reader.bytes("trimmed", switches.trimmed_bytes);
  switches.buffer_bytes = reader.bytes("buffer", 0, bdp);
  switches.pfc = read_pfc(reader, bdp);
  // A lossless class has no bound per port: what is full pauses those who fill it.
  const Bytes queue = switches.pfc.enabled ? 0
                      : switches.trimming  ? kQueueWithTrimming * bdp
                                           : kQueueWithout * bdp;
  switches.queue_bytes = reader.bytes("queue", queue, bdp);
  switches.control_queue_bytes = reader.bytes("control_queue", 0, bdp);
  switches.control_weight = static_cast<uint32_t>(reader.whole("control_weight", 0));
  switches.ecn = read_ecn(reader, bdp);
  switches.telemetry = reader.flag("telemetry", telemetry);
  if (switches.pfc.enabled && switches.buffer_bytes == 0) {
    reader.complain("pfc", "needs a shared buffer to share: set buffer, such as \"16MiB\"");
  }
}

}  // namespace

Result<TransportSpec> read_transport(const SpecValue& value) {
  SpecReader reader(*value.table(), "[transport]", value.place);
  TransportSpec spec;
  std::vector<std::string_view> names;
  std::ranges::transform(controllers(), std::back_inserter(names), &ControllerInfo::name);
  const auto usual = std::ranges::find(names, spec.congestion_control) - names.begin();
  spec.congestion_control = names[reader.choice("cc", static_cast<size_t>(usual), names)];
  if (reader.has("allocator")) {
    names.clear();
    std::ranges::transform(allocators(), std::back_inserter(names), &AllocatorInfo::name);
    spec.allocator = names[reader.choice("allocator", 0, names)];
  }
  spec.rate_max = reader.rate("rate_max", Rate());
  spec.mtu = reader.bytes("mtu", spec.mtu);
  if (spec.mtu < 256 || spec.mtu > 16384) {
    reader.complain("mtu", "is out of range: use 256 to 16384 bytes of payload per packet");
  }
  spec.paths = static_cast<uint32_t>(reader.whole("paths", spec.paths, 1, 1U << 16));
  spec.path_policy = static_cast<PathPolicy>(
      reader.choice("path_policy", static_cast<size_t>(spec.path_policy), kPathPolicies));
  spec.window_packets =
      static_cast<uint32_t>(reader.whole("window_packets", 0, 0, wire::kMaxBitmapWords * 64));
  spec.ack_bytes = reader.bytes("ack_bytes", spec.ack_bytes);
  spec.base_rtt = reader.duration("base_rtt", spec.base_rtt);
  spec.timeout = reader.duration("timeout", spec.timeout);
  const SpecValue* reordering = reader.value("reordering");
  if (reordering != nullptr && reordering->string() != nullptr && *reordering->string() == "any") {
    spec.reordering = Duration::max();
  } else {
    spec.reordering = reader.duration("reordering", spec.reordering);
  }
  spec.receives_posted = reader.flag("receives_posted", spec.receives_posted);
  if (const auto read = reader.finish(); !read) return tl::unexpected(read.error());
  return spec;
}

Result<Bytes> read_overhead(const SpecValue& value) {
  SpecReader reader(*value.table(), "[fabric]", value.place);
  const Bytes overhead = reader.bytes("overhead", HostPortConfig().overhead_bytes);
  if (overhead > 1024) reader.complain("overhead", "is more than 1024 bytes per packet");
  if (reader.failed()) return tl::unexpected(reader.finish().error());
  return overhead;
}

Result<FabricConfig> read_fabric(const SpecValue& value, const TransportSpec& transport,
                                 const SpecContext& context) {
  SpecReader reader(*value.table(), "[fabric]", value.place);
  FabricConfig config;
  config.hosts.overhead_bytes = reader.bytes("overhead", config.hosts.overhead_bytes);
  config.hosts.data_queue_bytes = reader.bytes("host_queue", config.hosts.data_queue_bytes);
  config.hosts.inbox_bytes = reader.bytes("inbox", config.hosts.inbox_bytes, context.bdp);
  config.hosts.drain_rate = reader.rate("drain_rate", Rate());
  config.hosts.paths = static_cast<uint16_t>(std::min<uint32_t>(transport.paths, 0xFFFF));
  config.packets = reader.whole("packets", config.packets, 64, 1U << 26);
  config.failover = reader.duration("failover", config.failover);
  const std::string& cc = transport.congestion_control;
  read_switches(reader, cc == "hpcc" || cc == "powertcp", context.bdp, config.switches);
  if (const auto read = reader.finish(); !read) return tl::unexpected(read.error());
  return config;
}

}  // namespace pacecar
