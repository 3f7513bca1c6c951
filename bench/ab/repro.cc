#include "bench/ab/repro.h"

#include <fmt/format.h>

#include <filesystem>

#include "bench/ab/provenance.h"
#include "bench/cli/build_info.h"
#include "bench/cli/command_line.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

namespace fs = std::filesystem;

// The words of a command line without those that name the results' folder or are about old results.
std::vector<std::string> flags_to_keep(const std::vector<std::string>& argv) {
  std::vector<std::string> kept;
  bool command = false;  // the words behind "--" are another program's
  for (size_t i = 1; i < argv.size(); ++i) {
    command |= argv[i] == "--";
    const bool dropped =
        argv[i] == "--force" || argv[i] == "--resume" || argv[i].starts_with("--out=");
    if (!command && argv[i] == "--out") {
      ++i;
    } else if (command || !dropped) {
      kept.push_back(argv[i]);
    }
  }
  return kept;
}

std::string exports() {
  std::string lines;
  const nlohmann::json settings = provenance("")["environment"];
  for (const auto& [name, value] : settings.items()) {
    lines += fmt::format("export {}={}\n", name, cli::shell_quoted(value.get<std::string>()));
  }
  return lines;
}

}  // namespace

Result<void> write_repro(const ResultsFolder& results, const std::vector<std::string>& argv,
                         const std::string& folder, const std::string& plan) {
  std::string script = fmt::format(
      "#!/bin/sh\n"
      "# Runs this experiment again, into the folder that is given or a new one. These results "
      "are\n"
      "# of pacecar {}, commit {}.\n"
      "# shellcheck disable=SC2016  # variables of the command's own\n"
      "set -eu\n"
      "pacecar=${{PACECAR:-pacecar}}\n"
      "command -v \"$pacecar\" >/dev/null || {{\n"
      "  echo \"error: there is no program $pacecar: put pacecar on PATH, or its path into "
      "PACECAR\" >&2\n"
      "  exit 2\n"
      "}}\n"
      "results=$(cd \"$(dirname \"$0\")\" && pwd)\n",
      build_version(), build_commit());
  if (!plan.empty()) {
    const std::string path = cli::shell_quoted(fs::absolute(plan).string());
    script += fmt::format(
        "cmp -s {} \"$results/plan.toml\" ||\n"
        "  echo 'warning: the plan has changed since; plan.toml is what it was' >&2\n",
        path);
  }
  script += fmt::format("cd {}\n{}exec \"$pacecar\" ab --out \"${{1:-$results.again}}\"",
                        cli::shell_quoted(folder), exports());
  script += " " + cli::shell_line(flags_to_keep(argv)) + "\n";
  RETURN_IF_ERROR(results.write("repro.sh", script));
  using Perms = fs::perms;
  fs::permissions(results.file("repro.sh"),
                  Perms::owner_exec | Perms::group_exec | Perms::others_exec,
                  fs::perm_options::add);
  return {};
}

}  // namespace pacecar::ab
