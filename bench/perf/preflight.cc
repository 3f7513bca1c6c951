#include "bench/perf/preflight.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>

#include "bench/perf/command_line.h"
#include "bench/perf/files.h"
#include "bench/preflight/checks.h"
#include "bench/preflight/probes.h"
#include "bench/preflight/read_facts.h"
#include "bench/preflight/report.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

constexpr uint64_t kLongestWatch = 3600;  // seconds

constexpr const char* kFooter = R"(Examples:
  pacecar preflight                        this host
  pacecar preflight --only rdma,gid,mtu    some checks of it
  pacecar preflight --only fabric --watch 10
                                           are packets lost now? while a job runs
  peer$ pacecar preflight --listen         packet sizes on the way to a peer and back
  host$ pacecar preflight --only mtu --peer peer
  pacecar preflight --root DIR             DIR/sys, DIR/proc, ...: files copied from a host
  pacecar preflight --hosts gpu[01-16]     16 hosts at once: what is wrong, and what differs
Exit codes: 0 no problem, 1 an error was found or the run failed, 2 wrong usage, 3 only warnings.)";

// This process's settings; those of a copied host are not known.
preflight::Settings settings_of(bool live) {
  preflight::Settings settings;
  settings.version = PACECAR_VERSION;
  settings.socket_buffer = Params().socket_buffer;
  if (!live) return settings;
  const auto params = load_params_from_environment({}, &settings.warnings);
  if (params) {
    settings.socket_buffer = params->socket_buffer;
    settings.gid_index = params->gid_index;
  } else {
    settings.error = params.error().message;
  }
  return settings;
}

preflight::Facts gather(const PreflightOptions& flags, const Console& console) {
  const bool live = flags.root.empty();
  const preflight::HostTree tree(live ? "/" : flags.root);
  preflight::Facts facts = preflight::read_facts(tree, live);
  if (flags.watch_s > 0) {
    console.note(fmt::format("watching the counters for {} s", flags.watch_s));
    std::this_thread::sleep_for(std::chrono::seconds(flags.watch_s));
    preflight::Facts later = preflight::read_facts(tree, live);
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

// Refuses a copy without any file of a host.
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

Result<int> examine_host(const PreflightOptions& flags, const Console& console) {
  RETURN_IF_ERROR(check_copy(flags.root));
  ASSIGN_OR_RETURN(const auto checks, preflight::choose_checks(flags.only));
  RETURN_IF_ERROR(check_writable(flags.json_file));
  const preflight::Facts facts = gather(flags, console);
  const auto findings = preflight::examine(facts, checks);
  if (!flags.json_file.empty()) {
    nlohmann::json document = preflight::to_json(findings, PACECAR_VERSION);
    document["facts"] = preflight::comparable(facts);
    RETURN_IF_ERROR(write_json(flags.json_file, document));
  }
  if (flags.json_file != kStandardOutput) {
    const bool color = may_color(!flags.no_color, STDOUT_FILENO);
    fmt::print("{}", preflight::to_text(findings, {.color = color, .quiet = flags.quiet}));
  }
  return exit_code_of(findings.worst());
}

Result<int> listen(const PreflightOptions& flags, const Console& console) {
  ASSIGN_OR_RETURN(auto listener, preflight::ProbeListener::open(flags.bind, flags.port));
  console.note(fmt::format("answering probes at {} on UDP port {}; end with Ctrl-C",
                           flags.bind.empty() ? "all addresses" : flags.bind, listener.port()));
  while (listener.answer_one()) {
  }
  return fail(ErrorCode::kSystem, "the listener's socket failed: start it again");
}

}  // namespace

void add_preflight_flags(CLI::App& app, PreflightOptions& flags) {
  app.add_option("--only", flags.only, "checks to run, such as rdma,gid; --list names them");
  app.add_flag("--list", flags.list, "list the checks and what each can find");
  auto* root = app.add_option("--root", flags.root, "examine a copy of a host's files")
                   ->check(CLI::ExistingDirectory);
  auto* peer = app.add_option("--peer", flags.peer, "the largest packets on the way to this host");
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
  auto* hosts = add_hosts_flags(app, flags.many, "examine these hosts, not this one");
  hosts->excludes(root)->excludes(listen);
  app.footer(kFooter);
}

Result<int> preflight_this_host(const PreflightOptions& flags, const Console& console) {
  if (flags.list) {
    fmt::print("{}", preflight::list_checks());
    return kExitOk;
  }
  return flags.listen ? listen(flags, console) : examine_host(flags, console);
}

ExitCode exit_code_of(preflight::Severity worst) {
  if (worst == preflight::Severity::kError) return kExitFailed;
  return worst == preflight::Severity::kWarning ? kExitThresholdMissed : kExitOk;
}

}  // namespace pacecar::perf
