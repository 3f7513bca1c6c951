#include "bench/metrics/exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "bench/cli/clock.h"

namespace pacecar::metrics {
namespace {

// NICs have unique identities; a process without one is its pid.
std::string identity_of(const doctor::Process& process) {
  return fmt::format("{}/{}", process.pid,
                     process.nics.empty() ? "" : process.nics.front().identity);
}

// The limit for one process: much more than a summary of many NICs takes.
constexpr size_t kMaxSummaryBytes = 1U << 20;

void add(Exposition& page, std::string_view name, std::string_view help, size_t value) {
  page.family(name, Type::kGauge, help);
  page.sample("", static_cast<double>(value));
}

void add_host(Exposition& page, const Host& host) {
  add(page, "pacecar_processes",
      "Processes of this host that use Pacecar and have reported their state.",
      host.processes.size());
  add(page, "pacecar_silent_processes",
      "Processes that do not answer at their state socket: stopped, or stuck.", host.silent);
  add(page, "pacecar_unreadable_processes",
      "Processes, or their directories, whose state could not be read.", host.unreadable);
  add(page, "pacecar_nics_left_out", "NICs of processes beyond the reported maximum.",
      host.nics_left_out);
  page.family("pacecar_exporter_info", Type::kGauge, "What serves this page.");
  std::string version;
  add_label(version, "version", PACECAR_VERSION);
  page.sample(version, 1);
  // Not process_cpu_seconds_total, which node_exporter also exports for itself.
  page.family("pacecar_exporter_cpu_seconds", Type::kCounter, "CPU time of the exporter itself.");
  page.sample("", cli::process_cpu_time().seconds());
}

}  // namespace

std::vector<size_t> ProcessNumbers::of(const std::vector<doctor::Process>& processes) {
  const std::map<Process, size_t> before = std::exchange(numbers_, {});
  std::set<std::pair<Kind, size_t>> taken;
  std::vector<Process> keys;
  for (const doctor::Process& process : processes) {
    const Process& key =
        keys.emplace_back(Kind(process.program, process.rank), identity_of(process));
    const auto known = before.find(key);
    if (known == before.end()) continue;
    numbers_.insert(*known);
    taken.emplace(key.first, known->second);
  }
  std::vector<size_t> numbers;
  for (const Process& key : keys) {
    const auto [number, added] = numbers_.emplace(key, 0);
    while (added && !taken.emplace(key.first, number->second).second) ++number->second;
    numbers.push_back(number->second);
  }
  return numbers;
}

Host host_of(const doctor::Gathered& gathered, ProcessNumbers& numbers) {
  Host host{.processes = {},
            .silent = gathered.evidence.silent.size(),
            .unreadable = gathered.warnings.size()};
  doctor::Job job;  // a process may be found through several directories
  for (const doctor::Samples& samples : gathered.evidence.seen) {
    auto process = doctor::read_summary(samples.now);
    if (process) {
      job.add(std::move(*process));
    } else {
      ++host.unreadable;
    }
  }
  const std::vector<size_t> given = numbers.of(job.processes());
  size_t room = kMaxNics;
  for (size_t i = 0; i < given.size(); ++i) {
    const doctor::Process& process = job.processes()[i];
    ProcessFigures figures{.program = process.program,
                           .rank = process.rank,
                           .number = std::to_string(given[i]),
                           .uptime = process.uptime_s,
                           .nics = {}};
    const size_t count = std::min(room, process.nics.size());
    for (const doctor::Nic& nic : std::span(process.nics).first(count)) {
      figures.nics.push_back(nic.figures);
    }
    room -= count;
    host.nics_left_out += process.nics.size() - count;
    host.processes.push_back(std::move(figures));
  }
  return host;
}

std::string page_of(const Host& host) {
  Exposition page;
  add_processes(page, host.processes);
  add_host(page, host);
  return page.take();
}

Page Exporter::page() {
  const std::lock_guard lock(making_);
  const doctor::Gathered gathered = doctor::gather(
      {.directories = doctor::state_directories().value_or(std::vector<std::string>()),
       .page = kStateSummary,
       .limit = kAnswerLimit,
       .max_bytes = kMaxSummaryBytes});
  const Host host = host_of(gathered, numbers_);
  return {page_of(host), gathered.warnings};
}

}  // namespace pacecar::metrics
