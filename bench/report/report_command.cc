// `pacecar report`: the state of a host, or of many, in one file for a ticket.
#include <fmt/format.h>
#include <poll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "bench/cli/build_info.h"
#include "bench/cli/child.h"
#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/files.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/subcommands.h"
#include "bench/hosts/targets.h"
#include "transport/base/params_environment.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

using Words = std::vector<std::string>;

constexpr Duration kServingLimit = Duration::from_s(20);
constexpr int kGraceMs = 2000;
constexpr const char* kFooter = R"(Examples:
  pacecar report                          this host; bw and lat between two of its processes
  pacecar report --hosts gpu[01-04]       these hosts, and bw and lat between them
It takes about ten seconds, and longer with many hosts; bw and lat share the NICs with jobs.
Host names, IP and hardware addresses become NAME-1, ADDRESS-1 and so on, unless --addresses is
given. Read the file before you pass it on.
Exit codes: 0 the file is written (it says what failed), 1 failed, 2 wrong usage.)";

struct Flags {
  std::string file = "pacecar-report.txt";
  bool addresses = false;
  cli::HostsFlags many;
};

// Its output and errors, and how it has ended.
std::string text_of(Result<cli::Child> child) {
  if (!child) return child.error().message + "\n";
  while (child->output_open() && !cli::Interrupt::asked()) {
    std::vector<pollfd> polled;
    child->add_to(polled);
    constexpr int kLookMs = 200;
    poll(polled.data(), polled.size(), kLookMs);
    child->read();
  }
  const cli::ExitStatus status = cli::Interrupt::asked() ? child->end(kGraceMs) : child->wait();
  child->read();
  return fmt::format("{}{}({})\n", child->output, child->errors, status.text());
}

class Program {
 public:
  explicit Program(const cli::HostsFlags& many)
      : self_(std::filesystem::read_symlink("/proc/self/exe")) {
    if (!many.given()) return;
    hosts_ = {"--hosts",  many.hosts,  "--launch", many.launch,
              "--remote", many.remote, "--reach",  fmt::format("{}", many.reach_s)};
  }

  // A subcommand on this host, or on the hosts that are named.
  std::string run(Words words) const {
    words.insert(words.begin(), self_);
    words.insert(words.end(), hosts_.begin(), hosts_.end());
    return text_of(cli::Child::execute(words, {}));
  }

  // bw or lat between all hosts, or between two processes of this host.
  std::string measure(const Words& test) const {
    if (!hosts_.empty()) return run(test);
    std::array<char, 32> folder{"/tmp/pacecar-report-XXXXXX"};
    if (mkdtemp(folder.data()) == nullptr) return "cannot make a folder in /tmp\n";
    const std::string file = std::string(folder.data()) + "/server";
    auto server = cli::Child::execute({self_, test[0], "-p", "0", "--announce", file}, {});
    if (!server) return server.error().message + "\n";
    const Instant limit = cli::steady_now() + kServingLimit;
    std::string place;
    while (place.find('\n') == std::string::npos && !server->ended() && cli::steady_now() < limit &&
           !cli::Interrupt::asked()) {
      constexpr int kLookMs = 20;
      poll(nullptr, 0, kLookMs);
      place = cli::read_text(file).value_or("");
    }
    const auto words = cli::shell_words(place).value_or(Words());
    std::string text;
    if (words.size() == 2) {
      Words client = test;
      client.insert(client.begin(), self_);
      client.insert(client.end(), {"-p", words[1], words[0]});
      text = text_of(cli::Child::execute(client, {}));
    }
    server->end(kGraceMs);
    server->read();
    std::error_code ignored;
    std::filesystem::remove_all(folder.data(), ignored);
    return words.size() == 2 ? text : "the server does not start: " + server->errors;
  }

 private:
  std::string self_;
  Words hosts_;
};

std::string utc_now() {
  std::array<char, 32> text{};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::strftime(text.data(), text.size(), "%F %T", gmtime_r(&now, &parts));
  return text.data();
}

std::string parameters_text() {
  const auto params = load_params_from_environment({}, nullptr);
  if (!params) return params.error().message + "\n";
  std::string text;
  for (size_t row = 0; row < param_table().size(); ++row) {
    if (params->origin(row) == "default") continue;
    text += fmt::format("{}={}  ({})\n", param_table()[row].name, params->text(row),
                        params->origin(row));
  }
  return text.empty() ? "all have their defaults\n" : text;
}

// Replaces whole words that `pattern` finds by a name and a number; equal words get the same.
std::string hide(const std::string& text, const std::regex& pattern, const char* name) {
  const auto in_word = [&](size_t at) {
    const char letter = at < text.size() ? text[at] : ' ';
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
  };
  std::map<std::string, size_t> known;
  std::string hidden;
  size_t done = 0;
  for (std::sregex_iterator found(text.begin(), text.end(), pattern), end; found != end; ++found) {
    const auto begin = static_cast<size_t>(found->position());
    const size_t after = begin + static_cast<size_t>(found->length());
    if ((begin > 0 && in_word(begin - 1)) || in_word(after)) continue;
    const size_t number = known.emplace(found->str(), known.size() + 1).first->second;
    hidden += fmt::format("{}{}-{}", text.substr(done, begin - done), name, number);
    done = after;
  }
  return hidden + text.substr(done);
}

std::string without_addresses(std::string text, Words names) {
  static const std::regex kSpecial(R"([.^$|()\[\]{}*+?\\])");
  std::erase(names, "");
  std::ranges::sort(names, std::greater<>(), &std::string::size);  // gpu10 before gpu1
  for (std::string& name : names) name = std::regex_replace(name, kSpecial, R"(\$&)");
  // With its domain; vm.nr_hugepages, which has a '_', is not a host.
  const std::string name = fmt::format("({})(\\.[A-Za-z0-9-]+)*", fmt::join(names, "|"));
  text = hide(text, std::regex(name), "NAME");
  // IPv4; then IPv6, hardware addresses and GUIDs, which have three colons or a double one.
  static const std::regex kIpv4(R"(\d{1,3}(\.\d{1,3}){3})");
  static const std::regex kColons(
      R"([0-9a-fA-F]{0,4}::[0-9a-fA-F:]*[0-9a-fA-F]|[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){3,7})");
  return hide(hide(text, kIpv4, "ADDRESS"), kColons, "ADDRESS-6");
}

// From doctor; a host without a job is not a failure here.
std::string jobs_text(const Program& program) {
  const std::string text = program.run({"doctor"});
  return text.find("no process with Pacecar") == std::string::npos
             ? text
             : "no job runs: make a report while one does\n";
}

Result<void> report(const Flags& flags, const cli::Console& console) {
  RETURN_IF_ERROR(cli::check_writable(flags.file));
  Words names;
  if (flags.many.given()) {
    ASSIGN_OR_RETURN(const auto hosts, hosts::read_hosts(flags.many.hosts));
    for (const hosts::Host& host : hosts) names.push_back(host.name);
  }
  utsname system{};
  uname(&system);
  names.emplace_back(system.nodename);
  const cli::Interrupt interrupt;
  const Program program(flags.many);
  std::string text;
  const auto add = [&](const char* title, const std::string& section) {
    text += fmt::format("== {}\n{}\n", title, section);
  };
  double load = 0;
  getloadavg(&load, 1);
  add("Versions",
      fmt::format("pacecar {} (commit {}, {})\n{} {} {}, {} processors, load {:.2g}, {} UTC\n",
                  PACECAR_VERSION, build_commit(), build_compiler(), system.sysname, system.release,
                  system.machine, sysconf(_SC_NPROCESSORS_ONLN), load, utc_now()));
  add("Parameters that are set here", parameters_text());
  const Words kBandwidth{"bw", "-s", "1M", "-D", "1", "--report_gbits"};
  if (names.size() == 1) add("Paths", "bw and lat run between two processes of this host\n");
  for (const auto& [title, make] :
       std::initializer_list<std::pair<const char*, std::function<std::string()>>>{
           {"preflight", [&] { return program.run({"preflight"}); }},
           {"bw, messages of 1 MiB", [&] { return program.measure(kBandwidth); }},
           {"lat, messages of 8 bytes",
            [&] {
              return program.measure({"lat", "-s", "8"});
            }},
           {"doctor: the jobs that run", [&] { return jobs_text(program); }}}) {
    if (cli::Interrupt::asked()) break;
    console.note(title);
    add(title, make());
  }
  if (cli::Interrupt::asked()) add("Interrupted", "the rest is missing\n");
  if (!flags.addresses) text = without_addresses(text, names);
  if (flags.file != cli::kStandardOutput) {
    console.note(fmt::format("written: {}; read it before you pass it on", flags.file));
    return cli::write_text(flags.file, text);
  }
  fmt::print("{}", text);
  return {};
}

}  // namespace

int run_report(int argc, char** argv) {
  Flags flags;
  CLI::App app("Writes a report for a ticket: versions, settings, preflight, bw, lat, doctor.",
               "pacecar report");
  app.add_option("--out", flags.file, "the file; -: standard output")->capture_default_str();
  app.add_flag("--addresses", flags.addresses, "keep host names and addresses");
  cli::add_hosts_flags(app, flags.many, "report on these hosts, not this one");
  app.footer(kFooter);
  return cli::run_subcommand(app, argc, argv, {},
                             [&](const cli::Console& console) { return report(flags, console); });
}

}  // namespace pacecar
