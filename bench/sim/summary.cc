#include "bench/sim/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "bench/sim/ideal.h"
#include "bench/sim/metrics.h"
#include "bench/sim/spec_file.h"

namespace pacecar {
namespace {

constexpr size_t kNamedFlows = 5;
constexpr std::array<std::string_view, 4> kForLossless{"dcqcn", "timely", "hpcc", "powertcp"};

double value(const RunResult& run, std::string_view name) {
  return metric_value(run, name).value();
}

std::string bytes_text(double bytes) {
  if (std::isnan(bytes)) return "-";
  if (bytes >= 1e9) return fmt::format("{:.4g} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.4g} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.4g} KB", bytes / 1e3);
  return fmt::format("{:.0f} B", bytes);
}

std::string number_text(double number, std::string_view form) {
  return std::isnan(number) ? "-" : fmt::format(fmt::runtime(form), number);
}

std::string us(double time) { return number_text(time, "{:.3f} us"); }

std::string plain(double number) { return number_text(number, "{:.3f}"); }

template <typename... Args>
void add_line(std::string& text, std::string_view label, fmt::format_string<Args...> what,
              Args&&... args) {
  text += fmt::format("  {:<26}{}\n", label, fmt::format(what, std::forward<Args>(args)...));
}

// Adds the lines of one job ("@NAME"), or of all flows ("").
void add_flows(std::string& text, const RunResult& run, const std::string& job) {
  const auto of = [&](std::string_view name) { return value(run, std::string(name) + job); };
  add_line(text, "finish, first / last", "{} / {}", us(of("first_finish_us")), us(of("finish_us")));
  add_line(text, "FCT p50 / p99 / max", "{} / {} / {}", us(of("fct_p50_us")), us(of("fct_p99_us")),
           us(of("fct_max_us")));
  add_line(text, "slowdown p50 / p99 / max", "{} / {} / {}", plain(of("slowdown_p50")),
           plain(of("slowdown_p99")), plain(of("slowdown_max")));
  add_line(text, "goodput, fairness", "{}, Jain {}", number_text(of("goodput_gbps"), "{:.2f} Gb/s"),
           plain(of("jain")));
}

void add_fabric(std::string& text, const RunResult& run) {
  const bool queued = run.queue_max_bytes > 0 && !run.queues.empty();
  add_line(text, "queue max / p99", "{} / {}{}; buffer {}",
           bytes_text(value(run, "queue_max_bytes")), bytes_text(run.queue_p99_bytes),
           queued ? " at " + run.queues[0].name : "", bytes_text(value(run, "buffer_max_bytes")));
  add_line(text, "marks / trims / drops", "{} / {} / {}", run.fabric.marked, run.fabric.trimmed,
           run.fabric.all_dropped());
  add_line(text, "sent again, timeouts", "{}, {}", run.nics.packets_retransmitted,
           run.nics.timeouts);
  if (run.fabric.pauses > 0) {
    add_line(text, "PFC pauses", "{}, {} in all", run.fabric.pauses, us(run.pause_time.us()));
  }
}

// After a pause the bytes on the cable, both ways, still arrive, and a packet that each end had
// begun. The fabric's own headroom has room for two packets more.
std::string pfc_warning(const RunSpec& spec, Bytes packet, uint64_t lost) {
  const PfcConfig& pfc = spec.fabric.switches.pfc;
  if (!pfc.enabled) return {};
  Bytes on_cable = 0;
  for (const Cable& cable : spec.topology.cables) {
    on_cable = std::max(on_cable, cable.rate.bytes_in(cable.delay * 2));
  }
  const std::string found =
      lost == 0 ? "" : fmt::format("PFC is on, and yet {} packets found no room: ", lost);
  if (pfc.headroom != 0 && pfc.headroom < on_cable + 2 * packet) {
    return fmt::format(
        "{}pfc's headroom of {} bytes is less than the {} that may arrive after a pause: set "
        "headroom = {} at least, or leave it out",
        found, pfc.headroom, on_cable + 4 * packet, on_cable + 4 * packet);
  }
  return lost == 0 ? found : found + "make the buffer larger";
}

}  // namespace

std::string undone_flows(const RunSpec& spec, const RunResult& run) {
  if (spec.endless) return {};
  std::string names;
  size_t undone = 0;
  for (const FlowResult& flow : run.flows) {
    if (flow.done()) continue;
    if (++undone > kNamedFlows) continue;
    names += fmt::format("{}{} (host {} to host {})", names.empty() ? "" : ", ", flow.id,
                         flow.source, flow.destination);
  }
  if (undone == 0) return {};
  const bool slow = spec.transport.reordering == Duration::max() && run.fabric.all_dropped() > 0;
  return fmt::format(
      "{} of {} flows were not done after {:.3f} us: {}{}; {}", undone, run.flows.size(),
      run.duration.us(), names, undone > kNamedFlows ? ", ..." : "",
      slow ? fmt::format("as reordering is \"any\", only the timeout, {:g} us, tells that packets "
                         "are lost, and {} were: give a shorter transport.timeout, or leave "
                         "reordering out",
                         spec.transport.timeout.us(), run.fabric.all_dropped())
           : "raise run.time_limit, or set run.endless if they need not be done");
}

std::vector<std::string> warnings(const RunSpec& spec, const RunResult& run) {
  std::vector<std::string> found;
  const auto warn = [&found](std::string text) {
    if (!text.empty()) found.push_back(std::move(text));
  };
  const SwitchConfig& switches = spec.fabric.switches;
  const PacketSizes sizes = packet_sizes(spec, spec.fabric.hosts.overhead_bytes);
  const Bytes packet = sizes.mtu + sizes.overhead;
  warn(undone_flows(spec, run));
  const uint64_t lost = run.fabric.dropped_for(FabricDrop::kQueueFull);
  warn(pfc_warning(spec, packet, lost));
  const std::string& control = spec.transport.congestion_control;
  if (lost > 0 && !switches.pfc.enabled && std::ranges::count(kForLossless, control) > 0) {
    warn(fmt::format(
        "{} is made for lossless fabrics, and this one dropped {} packets: set fabric.pfc = true "
        "and a fabric.buffer, or compare it with care",
        control, lost));
  }
  if (switches.ecn.marks_at(EcnConfig::When::kEnqueue) && switches.ecn.high <= packet) {
    warn(fmt::format(
        "ecn marks every full packet: {} bytes in a queue are less than one of {}; "
        "raise {}",
        switches.ecn.high, packet, switches.ecn.kind == EcnConfig::Kind::kStep ? "low" : "high"));
  }
  return found;
}

std::string fabric_text(const RunSpec& spec) {
  const Rate rate = std::ranges::max(host_limits(spec.topology).out);
  const Duration round_trip = spec.transport.base_rtt;
  const SwitchConfig& switches = spec.fabric.switches;
  std::string text =
      fmt::format("{} hosts ({}) at {:g} Gb/s, round trip {} (bdp {})", spec.topology.hosts,
                  spec.hosts.name, rate.gbps(), us(round_trip.us()),
                  bytes_text(static_cast<double>(rate.bytes_in(round_trip))));
  const auto add = [&text](std::string_view what, Bytes bytes) {
    if (bytes > 0) {
      text += fmt::format(", {} {}", what, bytes_text(static_cast<double>(bytes)));
    }
  };
  add("queues of", switches.queue_bytes);
  add("buffers of", switches.buffer_bytes);
  if (switches.trimming) text += ", trimming";
  if (switches.pfc.enabled) text += ", PFC";
  return text + (spec.transport.spreads() ? fmt::format(", {} paths\n", spec.transport.paths)
                                          : std::string(", one path\n"));
}

std::string summary(const RunResult& run) {
  double bytes = 0;
  for (const FlowResult& flow : run.flows) bytes += static_cast<double>(flow.bytes);
  std::string text = fmt::format("{}: {}, seed {}\n", run.name, run.congestion_control, run.seed);
  add_line(text, "flows", "{:.0f} of {} done, {}", value(run, "flows_done"), run.flows.size(),
           bytes_text(bytes));
  add_flows(text, run, "");
  if (run.jobs.size() > 1) {
    for (const std::string& job : run.jobs) {
      text += fmt::format("  - job {}\n", job);
      add_flows(text, run, "@" + job);
    }
  }
  if (run.jobs.size() > 1) text += "  - fabric\n";
  add_fabric(text, run);
  add_line(text, "simulated", "{} in {:.2f} s: {:.2f} M events, {:.2f} M/s", us(run.duration.us()),
           run.loop_cpu_seconds, static_cast<double>(run.events) * 1e-6,
           static_cast<double>(run.events) * 1e-6 / std::max(run.loop_cpu_seconds, 1e-6));
  return text;
}

}  // namespace pacecar
