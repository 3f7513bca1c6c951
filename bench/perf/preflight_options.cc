#include "bench/perf/preflight_options.h"

#include "bench/perf/command_line.h"
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

void add_flags(CLI::App& app, PreflightOptions& flags) {
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
  auto* hosts = add_hosts_flags(app, flags.many, "examine these hosts, not this one");
  hosts->excludes(root)->excludes(listen);
  app.footer(kFooter);
}

}  // namespace

Result<ParsedPreflight> parse_preflight_options(int argc, const char* const* argv) {
  ParsedPreflight parsed;
  CLI::App app(
      "Examines a host before Pacecar or NCCL run on it, and prints a cure for each problem.",
      "pacecar preflight");
  add_flags(app, parsed.options);
  ASSIGN_OR_RETURN(parsed.help, parse_command_line(app, argc, argv));
  if (parsed.options.many.given()) parsed.options.host_flags = given_flags(app, kOwnFlags);
  return parsed;
}

ExitCode exit_code_of(preflight::Severity worst) {
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

}  // namespace pacecar::perf
