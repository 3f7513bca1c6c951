// `pacecar top`: NICs and flows of the running jobs, live.
#include <fmt/chrono.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/json_fields.h"
#include "bench/cli/subcommands.h"
#include "bench/doctor/gather.h"
#include "bench/hosts/agent_pool.h"
#include "bench/top/page.h"
#include "bench/top/samples.h"
#include "bench/top/screen.h"
#include "transport/base/return_if_error.h"
#include "transport/base/start_thread.h"

namespace pacecar {
namespace {

using namespace top;
using cli::Console;

constexpr double kShortestInterval = 0.1;  // seconds
constexpr double kLongestInterval = 3600;
constexpr int kKeyMs = 100;  // between two looks for keys and samples
constexpr uint64_t kSamplesForRates = 2;

constexpr const char* kFooter = R"(Examples:
  pacecar top                            all processes of this user; as root, of all users
  pacecar top --hosts node1,node2        of these hosts, over ssh
  pacecar top --hosts slurm --launch srun  of the hosts of a Slurm job
  pacecar top --once                     one page for a log
  pacecar top --json >>flows.jsonl       one line for each sample, as pacecar doctor reads them
Keys: q quit, space pause, s/S sort by another column, r reverse, / filter, esc no filter, arrows
and PgUp/PgDn scroll, ? help. Lines of trouble begin with '!'; LIMIT is what pacecar doctor says.
Exit codes: 0 success, 1 failed, 2 wrong usage.)";

struct Flags {
  cli::HostsFlags many;
  double interval_s = 2;
  View view;
  bool once = false;
  bool json = false;
};

void add_flags(CLI::App& app, Flags& flags) {
  const std::vector<std::string> columns(kSortColumns.begin(), kSortColumns.end());
  app.add_option("--interval", flags.interval_s, "seconds between two samples")
      ->check(CLI::Range(kShortestInterval, kLongestInterval))
      ->capture_default_str();
  const auto sort_by = [columns, &view = flags.view](const std::string& name) {
    view.sort = static_cast<size_t>(std::ranges::find(columns, name) - columns.begin());
  };
  app.add_option_function<std::string>("--sort", sort_by, "sort flows by this column")
      ->check(CLI::IsMember(columns))
      ->default_str(columns.front());
  app.add_option("--filter", flags.view.filter,
                 "only what has this in process, NIC, peer or limit");
  app.add_flag("--once", flags.once, "print one page, after two samples that give rates");
  auto* json = app.add_flag("--json", flags.json, "print a line of JSON for each sample");
  cli::add_hosts_flags(app, flags.many, "watch these hosts, not this one")->excludes(json);
  app.footer(kFooter);
}

// Sleeps, until `ends` returns true. Returns false in that case.
template <typename Ends>
bool wait_for(double seconds, Ends ends) {
  for (double left_ms = seconds * 1e3; left_ms > 0 && !ends(); left_ms -= kKeyMs) {
    poll(nullptr, 0, static_cast<int>(std::ceil(std::min<double>(left_ms, kKeyMs))));
  }
  return !ends();
}

void watch_this_host(const std::stop_token& stop, HostSamples& samples, double interval_s,
                     const std::vector<std::string>& directories) {
  do {
    doctor::Gathered gathered = doctor::gather({.directories = directories});
    samples.post(0, std::move(gathered.evidence), std::move(gathered.warnings));
  } while (wait_for(interval_s, [&] { return stop.stop_requested(); }));
}

// The agent on each host runs `pacecar top --json --once` again and again.
void watch_hosts(const std::stop_token& stop, HostSamples& samples, const Flags& flags,
                 const hosts::Targets& targets) {
  hosts::AgentPool agents(targets.hosts, targets.launcher, flags.many.remote,
                          cli::duration_of(flags.many.reach_s));
  std::vector<Instant> next(targets.hosts.size());  // sample at each host; never: one is under way
  const auto take = [&](const hosts::Event& event) {
    if (event.kind == hosts::Event::Kind::kLost) {
      samples.end(event.host, agents.why_lost(event.host));
    } else if (event.kind == hosts::Event::Kind::kEnded) {
      doctor::Evidence evidence;
      if (!event.output.empty() && doctor::add_evidence(event.output, evidence)) {
        samples.post(event.host, std::move(evidence), {});
        next[event.host] = cli::steady_now() + cli::duration_of(flags.interval_s);
      } else {
        agents.lose(event.host, "it gives no state: " + hosts::why_failed(event));
      }
    }
  };
  while (!stop.stop_requested()) {
    for (size_t i = 0; i < next.size(); ++i) {
      if (!agents.ready(i) || cli::steady_now() < next[i]) continue;
      agents.run(i, {"top", "--json", "--once"});
      next[i] = Instant::never();
    }
    for (const hosts::Event& event : agents.turn(Duration::from_ms(kKeyMs))) take(event);
  }
}

struct Shown {
  Rows rows;
  Status status;
};

Shown shown_of(const Flags& flags, const HostSamples& samples, const HostSamples::Seen& seen) {
  Shown shown{.rows = {},
              .status = {.time = fmt::format("{:%T}", fmt::localtime(std::time(nullptr))),
                         .hosts = samples.hosts(),
                         .interval_s = flags.interval_s,
                         .notes = seen.notes}};
  shown.rows = rows_of(seen.evidence, shown.status.notes);
  return shown;
}

Result<void> print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return cli::flush_output();
}

Result<void> run_once(Flags& flags, const HostSamples& samples) {
  while (!samples.has_samples(kSamplesForRates) && !cli::Interrupt::asked()) {
    poll(nullptr, 0, kKeyMs);
  }
  Shown shown = shown_of(flags, samples, samples.all());
  std::string text;
  for (const Line& line : page_of(shown.rows, flags.view, shown.status, 0)) {
    text += line.text + "\n";
  }
  RETURN_IF_ERROR(print(text));
  if (shown.rows.processes > 0 || !shown.rows.silent.empty()) return {};
  return fail(ErrorCode::kNotFound, doctor::kNoProcess);
}

Result<void> run_live(Flags& flags, const HostSamples& samples, const Console& console) {
  ASSIGN_OR_RETURN(const auto screen, Screen::open(console.colors_output()));
  View& view = flags.view;
  Shown shown = shown_of(flags, samples, {});
  uint64_t version = 0;
  while (!view.ends && !cli::Interrupt::asked()) {
    if (!view.paused && samples.version() != version) {
      version = samples.version();
      shown = shown_of(flags, samples, samples.all());
    }
    screen->draw(page_of(shown.rows, view, shown.status, screen->height()));
    if (const int key = screen->key(kKeyMs); key >= 0) press(view, key);
  }
  return {};
}

Result<void> run_json(const Flags& flags, const std::vector<std::string>& directories,
                      const Console& console) {
  do {
    const doctor::Gathered gathered = doctor::gather({.directories = directories});
    for (const std::string& warning : gathered.warnings) console.warn(warning);
    RETURN_IF_ERROR(print(cli::json_line(doctor::to_json(gathered.evidence))));
  } while (!flags.once && wait_for(flags.interval_s, cli::Interrupt::asked));
  return {};
}

Result<void> run(Flags& flags, const Console& console) {
  std::optional<hosts::Targets> targets;
  if (flags.many.given()) {
    ASSIGN_OR_RETURN(targets, hosts::targets_of(flags.many));
  }
  ASSIGN_OR_RETURN(const auto directories, doctor::state_directories());
  const cli::Interrupt interrupt(cli::Interrupt::Second::kIgnored);  // the screen is restored first
  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe
  if (flags.json) return run_json(flags, directories, console);
  std::vector<std::string> names(targets ? targets->hosts.size() : 1);  // empty: this host
  if (targets) std::ranges::transform(targets->hosts, names.begin(), &hosts::Host::name);
  HostSamples samples(names);
  // A thread of its own, so that a process that does not answer delays no key.
  const auto thread =
      start_thread<std::jthread>("watches processes", [&](const std::stop_token& stop) {
        if (targets) {
          watch_hosts(stop, samples, flags, *targets);
        } else {
          watch_this_host(stop, samples, flags.interval_s, directories);
        }
      });
  return flags.once ? run_once(flags, samples) : run_live(flags, samples, console);
}

}  // namespace

int run_top(int argc, char** argv) {
  Flags flags;
  CLI::App app("NICs and flows of the running jobs, live: rates, limits, round trips, stalls.",
               "pacecar top");
  add_flags(app, flags);
  return cli::run_subcommand(app, argc, argv, {},
                             [&](const Console& console) { return run(flags, console); });
}

}  // namespace pacecar
