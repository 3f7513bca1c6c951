// `pacecar run`: runs a program over Pacecar's NICs.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/perf/command_line.h"
#include "bench/perf/subcommands.h"
#include "bench/run/launch.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// "ours:theirs", without duplicates.
std::string before(const std::string& ours, const std::optional<std::string>& theirs) {
  if (!theirs || theirs->empty()) return ours;
  const std::string all = ":" + *theirs + ":";
  return all.find(":" + ours + ":") != std::string::npos ? *theirs : ours + ":" + *theirs;
}

}  // namespace

std::vector<Assignment> assignments_for(const LaunchPlan& plan, const Lookup& now) {
  std::vector<Assignment> set;
  if (plan.as == ProgramInterface::kVerbs) {
    set.emplace_back("LD_PRELOAD", before(plan.object, now("LD_PRELOAD")));
  } else {
    const std::string folder = std::filesystem::path(plan.object).parent_path();
    set.emplace_back("FI_PROVIDER_PATH", before(folder, now("FI_PROVIDER_PATH")));
    if (!now("FI_PROVIDER")) set.emplace_back("FI_PROVIDER", "pacecar");
  }
  if (!plan.nics.empty()) set.emplace_back("PACECAR_NICS", plan.nics);
  return set;
}

Result<std::string> find_library(ProgramInterface as, const std::string& program_folder,
                                 const std::function<bool(const std::string&)>& exists) {
  const bool verbs = as == ProgramInterface::kVerbs;
  const std::string file = verbs ? "libpacecar-verbs.so" : "libpacecar-fi.so";
  const std::string built = verbs ? "../net_plugin/verbs/" : "../net_plugin/libfabric/";
  const std::string installed = verbs ? "pacecar/verbs/" : "libfabric/";
  std::vector<std::string> places = {built};
  for (const char* const folder :
       {"../lib/x86_64-linux-gnu/", "../lib/aarch64-linux-gnu/", "../lib64/", "../lib/"}) {
    places.push_back(folder + installed);
  }
  for (std::string& place : places) {
    place = std::filesystem::path(program_folder + "/" + place + file).lexically_normal();
    if (exists(place)) return place;
  }
  return fail(
      ErrorCode::kNotFound,
      fmt::format("{} is in none of {}: install the package {}, or build it with {}", file,
                  fmt::join(places, ", "), verbs ? "libibverbs-pacecar" : "libfabric-pacecar",
                  verbs ? "libibverbs-dev" : "libfabric-dev"));
}

namespace {

constexpr const char* kFooter = R"(Examples:
  pacecar run -- ib_write_bw                      a program of libibverbs, unchanged
  pacecar run --nic soft:udp:eth0 -- ib_send_bw -x 0 server
  pacecar run --libfabric -- fi_pingpong          a program of libfabric
  pacecar run --show -- PROGRAM                   what would be set, and nothing else
The program sees a device for each NIC (pacecar_eth0) in addition to the host's own. Every parameter
that `pacecar info -c` lists applies to it, such as PACECAR_CC.
Exit codes: those of the program; 1 it or the library that it needs is not there, 2 wrong usage.)";

struct Flags {
  std::string nic;
  bool verbs = false;
  bool libfabric = false;
  bool show = false;
  bool quiet = false;
  std::vector<std::string> program;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--nic", flags.nic, "NICs to use, as PACECAR_NICS: soft:udp:eth0 (all)");
  auto* verbs = app.add_flag("--verbs", flags.verbs, "the program uses libibverbs (the default)");
  app.add_flag("--libfabric", flags.libfabric, "the program uses libfabric")->excludes(verbs);
  app.add_flag("--show", flags.show, "print what would be set, and do not run the program");
  app.add_flag("-q,--quiet", flags.quiet, "do not print what was set");
}

std::string own_folder() {
  std::error_code unreadable;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  return unreadable ? "." : program.parent_path().string();
}

std::optional<std::string> variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<int> start(const Flags& flags, const std::vector<Assignment>& set,
                  const perf::Console& console) {
  for (const auto& [name, value] : set) {
    console.note(fmt::format("{}={}", name, value));
    setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> argv;
  for (const std::string& word : flags.program) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return fail(ErrorCode::kNotFound,
              fmt::format("cannot run {}: {}", flags.program[0], std::strerror(errno)));
}

// Prints or sets the variables; then becomes the program.
Result<int> run(const Flags& flags, const perf::Console& console) {
  if (flags.program.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "no program is named: 'pacecar run -- PROGRAM' runs one");
  }
  LaunchPlan plan{.as = flags.libfabric ? ProgramInterface::kLibfabric : ProgramInterface::kVerbs,
                  .nics = flags.nic};
  ASSIGN_OR_RETURN(plan.object, find_library(plan.as, own_folder(), [](const std::string& path) {
                     return access(path.c_str(), R_OK) == 0;
                   }));
  const auto set = assignments_for(plan, variable);
  if (!flags.show) return start(flags, set, console);
  for (const auto& [name, value] : set) fmt::print("{}={}\n", name, value);
  return perf::kExitOk;
}

}  // namespace

int run_program(int argc, char** argv) {
  // Everything after -- belongs to the program.
  char** const end = std::find_if(argv, argv + argc,
                                  [](const char* word) { return std::strcmp(word, "--") == 0; });
  Flags flags;
  if (end != argv + argc) flags.program.assign(end + 1, argv + argc);
  CLI::App app("Runs a program over Pacecar's NICs: pacecar run [flags] -- PROGRAM [arguments]",
               "pacecar run");
  add_flags(app, flags);
  app.footer(kFooter);
  return perf::run_subcommand(app, static_cast<int>(end - argv), argv, {.quiet = &flags.quiet},
                              [&](const perf::Console& console) { return run(flags, console); });
}

}  // namespace pacecar
