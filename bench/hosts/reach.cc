#include "bench/hosts/reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/perf/clock.h"
#include "bench/perf/interrupt.h"
#include "transport/base/return_if_error.h"

namespace pacecar::hosts {
namespace {

constexpr std::string_view kErrorLabel = "error: ";

void print_lost(const Crew& crew, const std::vector<Event>& events, const perf::Console& console) {
  for (const Event& event : events) {
    if (event.kind != Event::Kind::kLost) continue;
    console.error(fmt::format("{}: {}", crew.host(event.host).name, crew.why_lost(event.host)));
  }
}

void warn_of_same_machines(const Crew& crew, const perf::Console& console) {
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < crew.size(); ++i) {
    if (!crew.ready(i)) continue;
    const auto [other, added] = first.emplace(crew.machine(i), i);
    if (added) continue;
    console.warn(
        fmt::format("{} and {} are the same machine: between them nothing leaves it; leave "
                    "one out",
                    crew.host(other->second).name, crew.host(i).name));
  }
}

void warn_of_releases(const Crew& crew, const perf::Console& console) {
  for (size_t i = 0; i < crew.size(); ++i) {
    if (!crew.ready(i) || crew.release(i) == PACECAR_VERSION) continue;
    console.warn(fmt::format("{} has pacecar {}, and this host {}: install the same one",
                             crew.host(i).name, crew.release(i), PACECAR_VERSION));
  }
}

}  // namespace

Result<Targets> targets_of(const perf::HostsFlags& flags) {
  ASSIGN_OR_RETURN(auto hosts, read_hosts(flags.hosts));
  ASSIGN_OR_RETURN(auto launcher, Launcher::parse(flags.launch));
  return Targets{std::move(hosts), std::move(launcher)};
}

std::string count_of(size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

Result<std::unique_ptr<Crew>> reach(const Targets& targets, const perf::HostsFlags& flags,
                                    const perf::Console& console) {
  console.note(fmt::format("reaching {} by {}", count_of(targets.hosts.size(), "host"),
                           targets.launcher.program()));
  auto crew = std::make_unique<Crew>(targets.hosts, targets.launcher, flags.remote,
                                     perf::duration_of(flags.reach_s));
  const Instant begun = perf::steady_now();
  {
    perf::ProgressBar bar(console.interactive());
    while (crew->waiting() > 0 && !perf::Interrupt::asked()) {
      print_lost(*crew, crew->turn(kTurn), console);
      const Duration elapsed = perf::steady_now() - begun;
      const size_t answered = crew->size() - crew->waiting();
      if (!bar.due(elapsed)) continue;
      bar.draw(static_cast<double>(answered) / static_cast<double>(crew->size()),
               fmt::format("{} of {}", answered, count_of(crew->size(), "host")), elapsed);
    }
  }
  print_lost(*crew, crew->turn(Duration()), console);
  if (perf::Interrupt::asked()) {
    return fail(ErrorCode::kUnavailable, "interrupted before anything was measured");
  }
  if (crew->ready_count() == 0) {
    return fail(ErrorCode::kPeer, crew->size() == 1 ? "the host has not answered"
                                                    : fmt::format("none of the {} hosts has "
                                                                  "answered: see above",
                                                                  crew->size()));
  }
  warn_of_releases(*crew, console);
  warn_of_same_machines(*crew, console);
  return crew;
}

std::vector<std::optional<Event>> run_on_all(
    Crew& crew, const std::function<std::vector<std::string>(size_t host)>& arguments_of,
    Duration limit, const perf::Console& console) {
  std::vector<std::optional<Event>> ends(crew.size());
  std::map<uint64_t, size_t> running;
  for (size_t i = 0; i < crew.size(); ++i) {
    const std::vector<std::string> arguments =
        crew.ready(i) ? arguments_of(i) : std::vector<std::string>();
    if (!arguments.empty()) running.emplace(crew.run(i, arguments), i);
  }
  const Instant deadline = perf::steady_now() + limit;
  while (!running.empty() && perf::steady_now() < deadline && !perf::Interrupt::asked()) {
    std::vector<Event> events = crew.turn(kTurn);
    print_lost(crew, events, console);
    for (Event& event : events) {
      if (event.kind == Event::Kind::kLost) {
        std::erase_if(running, [&](const auto& one) { return one.second == event.host; });
      } else if (event.kind == Event::Kind::kEnded && running.erase(event.id) > 0) {
        ends[event.host] = std::move(event);
      }
    }
  }
  for (const auto& [id, host] : running) {
    crew.stop(host, id);
    if (perf::Interrupt::asked()) continue;
    console.error(
        fmt::format("{}: it took longer than {:g} s", crew.host(host).name, limit.seconds()));
  }
  return ends;
}

std::string why_failed(const Event& ended) {
  std::string text = last_line_of_errors(ended.errors);
  if (const size_t label = text.find(kErrorLabel); label != text.npos) {
    text.erase(0, label + kErrorLabel.size());
  }
  if (!text.empty()) return text;
  return ended.code > 128 ? fmt::format("it was ended by signal {}", ended.code - 128)
                          : fmt::format("it ended with exit code {}", ended.code);
}

}  // namespace pacecar::hosts
