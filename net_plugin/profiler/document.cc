#include "net_plugin/profiler/document.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace pacecar::profiler {
namespace {

constexpr int kSchemaVersion = 1;
constexpr double kNano = 1e-9;

// The names of reported Wait values, by index.
constexpr std::array<std::string_view, kWaits> kWaitNames = {"", "gpu", "peer", "network", "flush"};

// An array of numbers, in the order that README.md gives.
void append_event(std::string& text, const Event& event) {
  const Description& what = event.what;
  fmt::format_to(
      std::back_inserter(text), "[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]",
      event.id, static_cast<int>(what.kind), what.operation, what.datatype, what.channel,
      static_cast<int>(what.sending), what.peer, what.number, what.amount, event.parent,
      event.start_ns, event.stop_ns, event.moment_ns, event.first_ns, event.bytes, event.waits[1],
      event.waits[2], event.waits[3], event.waits[4], static_cast<int>(what.detailed));
}

void append_events(std::string& text, const std::vector<Event>& events) {
  text += '[';
  for (const Event& event : events) {
    if (text.back() != '[') text += ',';
    append_event(text, event);
  }
  text += ']';
}

void append_record(std::string& text, const Record& record) {
  const Identity who = record.identity();
  const Totals totals = record.totals();
  const auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"communicator":"{:016x}","rank":{},"ranks":{},"nodes":{},"totals":{{)",
                 who.communicator, who.rank, who.ranks, who.nodes);
  fmt::format_to(out, R"("collectives":{},"point_to_points":{},"bytes_sent":{},)",
                 totals.collectives, totals.point_to_points, totals.bytes_sent);
  fmt::format_to(out, R"("bytes_received":{},"busy_ns":{})", totals.bytes_received, totals.busy_ns);
  for (size_t i = 1; i < kWaits; ++i) {
    fmt::format_to(out, R"(,"{}_ns":{})", kWaitNames[i], totals.waits[i]);
  }
  text += R"(},"operations":)";
  append_events(text, record.operations());
  text += R"(,"steps":)";
  append_events(text, record.steps());
  text += '}';
}

struct Family {
  std::string_view name;
  std::string_view help;
};

void append_head(std::string& text, const Family& family) {
  fmt::format_to(std::back_inserter(text), "# HELP {0} {1}\n# TYPE {0} counter\n", family.name,
                 family.help);
}

void append_family(std::string& text, const Family& family, double value) {
  append_head(text, family);
  fmt::format_to(std::back_inserter(text), "{} {}\n", family.name, value);
}

}  // namespace

ProcessorTime processor_time() {
  ProcessorTime sum;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(thread.path() / "schedstat");
    ProcessorTime one;
    if (!(file >> one.run_ns >> one.waited_ns)) continue;
    sum.run_ns += one.run_ns;
    sum.waited_ns += one.waited_ns;
  }
  return sum;
}

std::string profile_document(const Recorder& recorder, const ProcessorTime& processor) {
  std::string text =
      fmt::format(R"({{"schema_version":{},"now_ns":{},"processor":{{"run_ns":{},"waited_ns":{}}},)"
                  R"("communicators":[)",
                  kSchemaVersion, recorder.now_ns(), processor.run_ns, processor.waited_ns);
  bool first = true;
  for (const Record* const record : recorder.records()) {
    if (!first) text += ',';
    first = false;
    append_record(text, *record);
  }
  return text + "]}";
}

std::string profile_metrics(const Recorder& recorder) {
  const std::vector<const Record*> records = recorder.records();
  if (records.empty()) return {};
  Totals sum;
  for (const Record* const record : records) {
    const Totals one = record->totals();
    sum.collectives += one.collectives;
    sum.bytes_sent += one.bytes_sent;
    sum.bytes_received += one.bytes_received;
    sum.busy_ns += one.busy_ns;
    for (size_t i = 1; i < kWaits; ++i) sum.waits[i] += one.waits[i];
  }
  std::string text;
  append_family(text, {"pacecar_collectives_total", "Collectives of the open communicators."},
                static_cast<double>(sum.collectives));
  append_family(text, {"pacecar_collective_sent_bytes_total", "Bytes that they have sent."},
                static_cast<double>(sum.bytes_sent));
  append_family(text, {"pacecar_collective_received_bytes_total", "Bytes that they have received."},
                static_cast<double>(sum.bytes_received));
  append_family(text,
                {"pacecar_collective_seconds_total", "Time in them, summed over their channels."},
                static_cast<double>(sum.busy_ns) * kNano);
  const Family waiting{"pacecar_collective_wait_seconds_total",
                       "Time that their messages have waited, by what for."};
  append_head(text, waiting);
  for (size_t i = 1; i < kWaits; ++i) {
    fmt::format_to(std::back_inserter(text), "{}{{for=\"{}\"}} {}\n", waiting.name, kWaitNames[i],
                   static_cast<double>(sum.waits[i]) * kNano);
  }
  return text;
}

}  // namespace pacecar::profiler
