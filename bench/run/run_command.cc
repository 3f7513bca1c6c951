// `pacecar run`: sets the variables by which a program of libibverbs or libfabric finds the NICs of
// Pacecar, and becomes the program.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "bench/cli/command_line.h"
#include "bench/cli/subcommands.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter = R"(Examples:
  pacecar run -- ib_write_bw                      a program of libibverbs, unchanged
  pacecar run --nic soft:udp:eth0 -- ib_send_bw -x 0 server
  pacecar run --libfabric -- fi_pingpong -e rdm   a program of libfabric
  pacecar run --show -- PROGRAM                   what would be set, and nothing else
The program sees a device for each NIC (pacecar_eth0) in addition to the host's own. Parameters of
the transport apply to it, such as PACECAR_CC; a program of libibverbs has no key (PACECAR_KEY_FILE)
and no state that `pacecar top`, doctor or metrics show.
Exit codes: those of the program; 1 it or the library that it needs is not there, 2 wrong usage.)";

struct Flags {
  std::string nic;
  bool verbs = false;
  bool libfabric = false;
  bool show = false;
  std::vector<std::string> program;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("-d,--nic", flags.nic, "NICs to use, as PACECAR_NICS: soft:udp:eth0 (all)");
  auto* verbs = app.add_flag("--verbs", flags.verbs, "the program uses libibverbs (the default)");
  app.add_flag("--libfabric", flags.libfabric, "the program uses libfabric")->excludes(verbs);
  app.add_flag("--show", flags.show, "print what would be set, and do not run the program");
}

// Our library for an interface, and its folders from that of `pacecar`.
struct Library {
  const char* file;
  const char* built;
  const char* installed;  // in a folder of libraries
  const char* package;
  const char* target;
  const char* build_needs;
};
constexpr Library kVerbs = {"libpacecar-verbs.so", "../net_plugin/verbs", "pacecar/verbs",
                            "libibverbs-pacecar",  "verbs_device",        "libibverbs-dev"};
constexpr Library kLibfabric = {"libpacecar-fi.so",  "../net_plugin/libfabric", "libfabric",
                                "libfabric-pacecar", "fabric_provider",         "libfabric-dev"};

Result<fs::path> find_library(const Library& library) {
  std::error_code unreadable;
  const fs::path own = fs::read_symlink("/proc/self/exe", unreadable).parent_path();
  std::vector<fs::path> folders = {library.built};
  for (const char* const lib :
       {"../lib/x86_64-linux-gnu", "../lib/aarch64-linux-gnu", "../lib64", "../lib"}) {
    folders.push_back(fs::path(lib) / library.installed);
  }
  std::vector<std::string> places;
  for (const fs::path& folder : folders) {
    places.push_back((own / folder / library.file).lexically_normal());
    if (access(places.back().c_str(), R_OK) == 0) return places.back();
  }
  return fail(ErrorCode::kNotFound,
              "{} is in none of {}: install the package {}, or build it with {} (cmake --build "
              "build/release --target {})",
              library.file, fmt::join(places, ", "), library.package, library.build_needs,
              library.target);
}

// The list of the variable with `ours` as its first entry, unless it has it.
std::string before_others(const std::string& ours, const char* variable) {
  const char* const theirs = std::getenv(variable);
  if (theirs == nullptr || *theirs == '\0') return ours;
  const bool has_it =
      fmt::format(":{}:", theirs).find(fmt::format(":{}:", ours)) != std::string::npos;
  return has_it ? theirs : fmt::format("{}:{}", ours, theirs);
}

using Assignments = std::vector<std::pair<const char*, std::string>>;

Result<Assignments> assignments_for(const Flags& flags) {
  ASSIGN_OR_RETURN(const auto library, find_library(flags.libfabric ? kLibfabric : kVerbs));
  Assignments set;
  if (!flags.libfabric) {
    set.emplace_back("LD_PRELOAD", before_others(library, "LD_PRELOAD"));
  } else {
    set.emplace_back("FI_PROVIDER_PATH", before_others(library.parent_path(), "FI_PROVIDER_PATH"));
    if (std::getenv("FI_PROVIDER") == nullptr) set.emplace_back("FI_PROVIDER", "pacecar");
  }
  if (!flags.nic.empty()) set.emplace_back("PACECAR_NICS", flags.nic);
  return set;
}

Result<int> run(const Flags& flags, const cli::Console& console) {
  if (flags.program.empty()) {
    return invalid("no program is named: 'pacecar run -- PROGRAM' runs one");
  }
  ASSIGN_OR_RETURN(const auto set, assignments_for(flags));
  for (const auto& [name, value] : set) {
    if (flags.show) fmt::print("{}={}\n", name, value);
    if (!flags.show) console.note(fmt::format("{}={}", name, value));
    setenv(name, value.c_str(), 1);
  }
  if (flags.show) return cli::kExitOk;
  std::vector<char*> argv;
  for (const std::string& word : flags.program) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return fail(ErrorCode::kNotFound, "cannot run {}: {}", flags.program[0], std::strerror(errno));
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
  return cli::run_subcommand(app, static_cast<int>(end - argv), argv, {},
                             [&](const cli::Console& console) { return run(flags, console); });
}

}  // namespace pacecar
