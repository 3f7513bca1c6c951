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
#include "bench/perf/preflight_options.h"
#include "bench/perf/run_subcommand.h"
#include "bench/perf/subcommands.h"
#include "bench/preflight/checks.h"
#include "bench/preflight/kernel_probes.h"
#include "bench/preflight/peer_path.h"
#include "bench/preflight/read_facts.h"
#include "bench/preflight/report.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

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

preflight::Facts gather(const PreflightOptions& flags, const Console& console) {
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
    const bool color =
        !flags.no_color && isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
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

int run_preflight(int argc, char** argv) {
  const auto parsed = parse_preflight_options(argc, argv);
  if (const auto code = code_of_words(parsed)) return *code;
  const PreflightOptions& flags = parsed->options;
  if (flags.list) {
    fmt::print("{}", preflight::list_checks());
    return kExitOk;
  }
  const Console console(flags.quiet, !flags.no_color);
  return code_of(flags.listen ? listen(flags, console) : examine_host(flags, console), console);
}

}  // namespace pacecar::perf
