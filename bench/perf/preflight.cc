// `pacecar preflight`: examines this host, or a copy of its files, before Pacecar or NCCL run on
// it.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>

#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/exit_code.h"
#include "bench/perf/files.h"
#include "bench/perf/subcommands.h"
#include "deploy/preflight/checks.h"
#include "deploy/preflight/kernel_probes.h"
#include "deploy/preflight/peer_path.h"
#include "deploy/preflight/read_facts.h"
#include "deploy/preflight/report.h"
#include "transport/base/params_environment.h"

namespace pacecar::perf {
namespace {

constexpr uint64_t kLongestWatch = 3600;     // seconds
constexpr uint16_t kDefaultUdpPort = 18515;  // the number of perftest's TCP port

constexpr const char* kFooter = R"(Examples:
  pacecar preflight                        this host
  pacecar preflight --only rdma,gid,mtu    some checks of it
  pacecar preflight --only fabric --watch 10
                                           are packets lost now? while a job runs
  peer$ pacecar preflight --listen         packet sizes on the way to a peer and back
  host$ pacecar preflight --only mtu --peer peer
  pacecar preflight --root DIR             DIR/sys, DIR/proc, ...: files copied from a host
Exit codes: 0 no problem, 1 an error was found or the run failed, 2 wrong usage, 3 only warnings.)";

struct Flags {
  std::string only;
  std::string root;
  std::string peer;
  std::string bind;
  std::string json_file;
  uint64_t watch_s = 0;
  uint16_t port = kDefaultUdpPort;
  bool listen = false;
  bool list = false;
  bool quiet = false;
  bool no_color = false;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--only", flags.only, "checks to run, such as rdma,gid; --list names them");
  app.add_flag("--list", flags.list, "list the checks and what each can find");
  auto* root = app.add_option("--root", flags.root, "examine a copy of a host's files")
                   ->check(CLI::ExistingDirectory);
  auto* peer = app.add_option("--peer", flags.peer, "how large may packets to this host be?");
  auto* watch = app.add_option("--watch", flags.watch_s, "watch the counters for these seconds")
                    ->check(whole_number(1, kLongestWatch));
  auto* listen = app.add_flag("--listen", flags.listen, "answer another host's --peer until ended");
  app.add_option("--bind", flags.bind, "--listen at this address or name only (default: at all)")
      ->needs(listen);
  app.add_option("-p,--port", flags.port, "UDP port of --peer and --listen")
      ->check(whole_number(0, UINT16_MAX))
      ->capture_default_str();
  add_json_flag(app, flags.json_file, "write the findings");
  app.add_flag("--quiet", flags.quiet, "problems only");
  app.add_flag("--no-color", flags.no_color, "no colours");
  peer->excludes(root);
  watch->excludes(root);
  listen->excludes(root)->excludes(peer)->excludes(watch);
  app.footer(kFooter);
}

// Those of this process; a copied host's are not known.
preflight::Settings settings_of(bool live) {
  preflight::Settings settings;
  settings.version = PACECAR_VERSION;
  settings.socket_buffer = Params().socket_buffer;
  if (!live) return settings;
  const auto params = load_params_from_environment({}, &settings.warnings);
  if (params) {
    settings.socket_buffer = params->socket_buffer;
    settings.gid_index = params->gid_index;
  }
  if (!params) settings.error = params.error().message;
  return settings;
}

preflight::Facts gather(const Flags& flags, const Console& console) {
  const bool live = flags.root.empty();
  const preflight::HostTree tree(live ? "/" : flags.root);
  const auto probes = live ? preflight::kernel_probes() : preflight::KernelProbes();
  preflight::Facts facts = preflight::read_facts(tree, probes);
  if (flags.watch_s > 0) {
    console.note(fmt::format("watching the counters for {} s", flags.watch_s));
    std::this_thread::sleep_for(std::chrono::seconds(flags.watch_s));
    preflight::Facts later = preflight::read_facts(tree, probes);
    preflight::note_growth(facts, Duration::from_s(static_cast<int64_t>(flags.watch_s)), later);
    facts = std::move(later);
  }
  facts.settings = settings_of(live);
  if (!flags.peer.empty()) {
    console.note(fmt::format("probing the way to {}; lost packets take seconds", flags.peer));
    facts.peer = preflight::probe_peer(flags.peer, {.port = flags.port});
  }
  return facts;
}

int exit_code(preflight::Severity worst) {
  switch (worst) {
    case preflight::Severity::kError:
      return kExitFailed;
    case preflight::Severity::kWarning:
      return kExitThresholdMissed;
    case preflight::Severity::kInfo:
    case preflight::Severity::kOk:
      break;
  }
  return kExitOk;
}

// A copy with nothing of a host in it says nothing about any.
Result<void> check_copy(const std::string& root) {
  if (root.empty()) return {};
  for (const char* folder : {"sys", "proc", "dev", "etc"}) {
    std::error_code ignored;
    if (std::filesystem::exists(std::filesystem::path(root) / folder, ignored)) return {};
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--root {} holds no sys, proc, dev or etc: copy those of a host there", root));
}

Result<int> examine_host(const Flags& flags, const Console& console) {
  if (auto copied = check_copy(flags.root); !copied) return tl::unexpected(copied.error());
  const auto checks = preflight::choose_checks(flags.only);
  if (!checks) return tl::unexpected(checks.error());
  if (auto writable = check_writable(flags.json_file); !writable) {
    return tl::unexpected(writable.error());
  }
  const auto findings = preflight::examine(gather(flags, console), *checks);
  if (!flags.json_file.empty()) {
    const auto written = write_json(flags.json_file, preflight::to_json(findings, PACECAR_VERSION));
    if (!written) return tl::unexpected(written.error());
  }
  if (flags.json_file != kStandardOutput) {
    const bool color =
        !flags.no_color && isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
    fmt::print("{}", preflight::to_text(findings, {.color = color, .quiet = flags.quiet}));
  }
  return exit_code(findings.worst());
}

Result<int> listen(const Flags& flags, const Console& console) {
  auto listener = preflight::ProbeListener::open(flags.bind, flags.port);
  if (!listener) return tl::unexpected(listener.error());
  console.note(fmt::format("answering probes at {} on UDP port {}; end with Ctrl-C",
                           flags.bind.empty() ? "all addresses" : flags.bind, listener->port()));
  while (listener->answer_one()) {
  }
  return fail(ErrorCode::kSystem, "the listener's socket failed: start it again");
}

}  // namespace

int run_preflight(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Examines a host before Pacecar or NCCL run on it, and says what cures each problem.",
      "pacecar preflight");
  add_flags(app, flags);
  const auto help = parse_command_line(app, argc, argv);
  const Console console(flags.quiet, !flags.no_color);
  if (!help) {
    console.error(help.error().message);
    return kExitUsage;
  }
  if (!help->empty() || flags.list) {
    fmt::print("{}", help->empty() ? preflight::list_checks() : *help);
    return kExitOk;
  }
  const auto code = flags.listen ? listen(flags, console) : examine_host(flags, console);
  if (code) return *code;
  console.error(code.error().message);
  return exit_code_of(code.error());
}

}  // namespace pacecar::perf
