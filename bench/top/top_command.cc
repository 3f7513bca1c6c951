// `pacecar top`: NICs and flows of the running jobs, live.
#include <fmt/core.h>
#include <poll.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/doctor/gather.h"
#include "bench/hosts/reach.h"
#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/files.h"
#include "bench/perf/hosts_flags.h"
#include "bench/perf/run_subcommand.h"
#include "bench/perf/subcommands.h"
#include "bench/top/board.h"
#include "bench/top/page.h"
#include "bench/top/remote.h"
#include "bench/top/screen.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"
#include "transport/state/state_directory.h"

namespace pacecar {
namespace {

using namespace top;
using perf::Console;

constexpr double kShortestInterval = 0.1;  // seconds
constexpr double kLongestInterval = 3600;
constexpr int kKeyMs = 100;  // between two reads of the board
constexpr uint64_t kLooksForRates = 2;

constexpr const char* kFooter = R"(Examples:
  pacecar top                            all processes of this user; as root, of all users
  pacecar top --hosts node1,node2        of these hosts, over ssh
  pacecar top --hosts slurm --launch srun  of a Slurm job's
  pacecar top --once                     one page for a log
  pacecar top --json >>flows.jsonl       one line for each look, as pacecar doctor reads them
Keys: q quit, space pause, s/S sort by another column, r reverse, / filter, esc no filter, arrows
and PgUp/PgDn scroll, ? help. Lines of trouble begin with '!'; LIMIT is what pacecar doctor says.
Exit codes: 0 success, 1 failed, 2 wrong usage.)";

struct Flags {
  perf::HostsFlags many;
  double interval_s = 2;
  std::string sort = "limit";
  std::string filter;
  bool reversed = false;
  bool once = false;
  bool json = false;
  bool no_color = false;
};

std::vector<std::string> column_names() {
  std::vector<std::string> names;
  for (size_t i = 0; i < kColumns; ++i) names.emplace_back(name_of(static_cast<Column>(i)));
  return names;
}

void add_flags(CLI::App& app, Flags& flags) {
  auto* hosts = perf::add_hosts_flags(app, flags.many, "watch these hosts, not this one");
  app.add_option("--interval", flags.interval_s, "seconds between two looks")
      ->check(CLI::Range(kShortestInterval, kLongestInterval))
      ->capture_default_str();
  app.add_option("--sort", flags.sort, "sort flows by this column")
      ->check(CLI::IsMember(column_names()))
      ->capture_default_str();
  app.add_option("--filter", flags.filter,
                 "only what has this in process, NIC, peer or limit");
  app.add_flag("--reverse", flags.reversed, "the other way round");
  app.add_flag("--once", flags.once, "print one page, after two looks that give rates");
  app.add_flag("--json", flags.json, "print a line of JSON for each look")->excludes(hosts);
  app.add_flag("--no-color", flags.no_color, "no colours (as NO_COLOR)");
  app.footer(kFooter);
}

// --- what is watched ---

Result<std::vector<std::string>> state_directories() {
  ASSIGN_OR_RETURN(const auto params, load_params_from_environment({}, nullptr));
  if (params.state_dir == kNoStateDirectory) {
    return fail(ErrorCode::kInvalidArgument,
                "PACECAR_STATE_DIR is none: processes with that setting cannot be seen; unset it");
  }
  if (params.state_dir.empty()) return usual_state_directories();
  return std::vector<std::string>{params.state_dir};
}

doctor::Gathered look(const std::vector<std::string>& directories) {
  return doctor::gather({.directories = directories});
}

// True: all of it has passed.
bool wait_for(double seconds, const std::stop_token& stop) {
  for (double left_ms = seconds * 1e3; left_ms > 0; left_ms -= kKeyMs) {
    if (stop.stop_requested()) return false;
    poll(nullptr, 0, static_cast<int>(std::ceil(std::min<double>(left_ms, kKeyMs))));
  }
  return !stop.stop_requested();
}

void watch_this_host(const std::stop_token& stop, Board& board, double interval_s,
                     const std::vector<std::string>& directories) {
  do {
    doctor::Gathered gathered = look(directories);
    board.post(0, std::move(gathered.evidence), std::move(gathered.warnings));
  } while (wait_for(interval_s, stop));
}

// Host names, and the command to reach them; empty: this host.
struct Remotes {
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> commands;
};

Result<Remotes> remotes_of(const Flags& flags) {
  Remotes remotes;
  if (!flags.many.given()) return remotes;
  ASSIGN_OR_RETURN(const auto targets, hosts::targets_of(flags.many));
  const std::vector<std::string> words{flags.many.remote, "top", "--json", "--interval",
                                       fmt::format("{}", flags.interval_s)};
  for (const hosts::Host& host : targets.hosts) {
    remotes.names.push_back(host.name);
    remotes.commands.push_back(targets.launcher.command(host, words));
  }
  return remotes;
}

class Watch {
 public:
  Watch(const Flags& flags, const Remotes& remotes, const std::vector<std::string>& directories)
      : board_(remotes.names.empty() ? std::vector<std::string>{""} : remotes.names) {
    if (remotes.names.empty()) {
      threads_.emplace_back([this, &flags, directories](const std::stop_token& stop) {
        watch_this_host(stop, board_, flags.interval_s, directories);
      });
    }
    for (size_t i = 0; i < remotes.names.size(); ++i) {
      threads_.emplace_back([this, command = remotes.commands[i], i](const std::stop_token& stop) {
        const auto post = [this, i](doctor::Evidence evidence) {
          board_.post(i, std::move(evidence), {});
        };
        board_.end(i, watch_remote(command, stop, post));
      });
    }
  }
  ~Watch() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

  const Board& board() const { return board_; }

 private:
  Board board_;
  std::vector<std::jthread> threads_;
};

// --- what is shown ---

std::atomic<bool> ended{false};

void end_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { ended = true; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

View view_of(const Flags& flags) {
  View view{.reversed = flags.reversed, .filter = flags.filter};
  for (size_t i = 0; i < kColumns; ++i) {
    if (name_of(static_cast<Column>(i)) == flags.sort) view.sort = static_cast<Column>(i);
  }
  return view;
}

struct Shown {
  Rows rows;
  Status status;
};

Shown shown_of(const Flags& flags, const Watch& watch, const Board::Seen& seen) {
  Shown shown{.rows = {},
              .status = {.time = time_of_day(),
                         .hosts = watch.board().hosts(),
                         .interval_s = flags.interval_s,
                         .notes = seen.notes}};
  shown.rows = rows_of(seen.evidence, shown.status.notes);
  return shown;
}

Result<void> print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return perf::flush_output();
}

Result<void> run_once(const Flags& flags, const Watch& watch) {
  while (!watch.board().has_looks(kLooksForRates) && !ended) poll(nullptr, 0, kKeyMs);
  Shown shown = shown_of(flags, watch, watch.board().all());
  View view = view_of(flags);
  std::string text;
  for (const Line& line : page_of(shown.rows, view, shown.status, 0)) text += line.text + "\n";
  RETURN_IF_ERROR(print(text));
  if (shown.rows.processes > 0 || !shown.rows.silent.empty()) return {};
  return fail(ErrorCode::kNotFound,
              "no process with Pacecar is to be seen: run as the job's user or root, on its host, "
              "and in containers with PACECAR_STATE_DIR on a directory that both see");
}

Result<void> run_live(const Flags& flags, const Watch& watch) {
  const bool color = !flags.no_color && std::getenv("NO_COLOR") == nullptr;
  ASSIGN_OR_RETURN(const auto screen, Screen::open(color));
  View view = view_of(flags);
  Shown shown = shown_of(flags, watch, {});
  uint64_t version = 0;
  while (!view.ends && !ended) {
    if (!view.paused && watch.board().version() != version) {
      version = watch.board().version();
      shown = shown_of(flags, watch, watch.board().all());
    }
    screen->draw(page_of(shown.rows, view, shown.status, screen->height()));
    if (const int key = screen->key(kKeyMs); key >= 0) press(view, key);
  }
  return {};
}

Result<void> run_json(const Flags& flags, const std::vector<std::string>& directories,
                      const Console& console) {
  do {
    const doctor::Gathered gathered = look(directories);
    for (const std::string& warning : gathered.warnings) console.warn(warning);
    const std::string line = doctor::to_json(gathered.evidence)
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    RETURN_IF_ERROR(print(line + "\n"));
    if (flags.once) break;
    for (double left_s = flags.interval_s; left_s > 0 && !ended; left_s -= kKeyMs * 1e-3) {
      poll(nullptr, 0, static_cast<int>(std::ceil(std::min(left_s * 1e3, double{kKeyMs}))));
    }
  } while (!ended);
  return {};
}

Result<void> run(const Flags& flags, const Console& console) {
  ASSIGN_OR_RETURN(const auto remotes, remotes_of(flags));
  ASSIGN_OR_RETURN(const auto directories, state_directories());
  end_on_signals();
  if (flags.json) return run_json(flags, directories, console);
  const Watch watch(flags, remotes, directories);
  return flags.once ? run_once(flags, watch) : run_live(flags, watch);
}

}  // namespace

int run_top(int argc, char** argv) {
  Flags flags;
  CLI::App app("NICs and flows of the running jobs, live: rates, limits, round trips, stalls.",
               "pacecar top");
  add_flags(app, flags);
  return perf::run_subcommand(app, argc, argv, {.no_color = &flags.no_color},
                              [&](const Console& console) { return run(flags, console); });
}

}  // namespace pacecar
