#include "bench/perf/hosts_flags.h"

#include <algorithm>

#include "bench/perf/command_line.h"

namespace pacecar::perf {
namespace {

constexpr double kLongestReach = 3600;  // seconds

}  // namespace

CLI::Option* add_hosts_flags(CLI::App& app, HostsFlags& flags, const std::string& what) {
  app.option_defaults()->group("Many hosts");
  auto* hosts =
      app.add_option("--hosts", flags.hosts,
                     what +
                         ": a file with one on each line, names such as gpu[01-16],login1, or "
                         "slurm for the job's nodes")
          ->check(CLI::Validator(
              [](std::string& text) { return std::string(text.empty() ? "it names no host" : ""); },
              ""));
  app.add_option("--launch,--ssh", flags.launch,
                 "how to reach them: ssh, srun, kubectl, or a command such as "
                 "'docker exec -i {host}'")
      ->needs(hosts)
      ->capture_default_str();
  app.add_option("--remote", flags.remote, "the program there")
      ->needs(hosts)
      ->capture_default_str();
  app.add_option("--reach", flags.reach_s, "seconds within which a host must answer")
      ->check(positive_number(kLongestReach))
      ->needs(hosts)
      ->capture_default_str();
  app.option_defaults()->group("Options");
  return hosts;
}

std::vector<std::string> given_flags(const CLI::App& app,
                                     const std::vector<std::string_view>& omitted) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const std::vector<std::string>& names = option->get_lnames();
    const std::string name =
        names.empty() ? "-" + option->get_snames().front() : "--" + names.front();
    if (std::ranges::find(omitted, name) != omitted.end()) continue;
    if (option->get_items_expected_max() == 0) {
      words.push_back(name);
      continue;
    }
    for (const std::string& value : option->results()) {
      words.push_back(name);
      words.push_back(value);
    }
  }
  return words;
}

}  // namespace pacecar::perf
