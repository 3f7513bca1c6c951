#include "bench/hosts/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <system_error>

#include "bench/cli/files.h"
#include "transport/base/invalid.h"
#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"
#include "transport/base/take_until.h"
#include "transport/base/to_number.h"

namespace pacecar::hosts {
namespace {

tl::unexpected<Error> wrong(std::string_view text, std::string_view why) {
  return invalid("'{}' {}: write names such as gpu[01-16,20],login1", printable(text), why);
}

tl::unexpected<Error> too_many(std::string_view text) {
  return wrong(text, fmt::format("stands for more than {} hosts", kMaxHosts));
}

// The numbers of "01-16,20", as texts.
Result<std::vector<std::string>> numbers_of(std::string_view text, std::string_view ranges) {
  constexpr std::string_view kNoNumbers = "has something else than numbers in its brackets";
  if (ranges.empty() || ranges.ends_with(',')) return wrong(text, kNoNumbers);
  std::vector<std::string> numbers;
  while (!ranges.empty()) {
    std::string_view range = take_until(ranges, ',');
    const bool single = range.find('-') == range.npos;
    const std::string_view low = take_until(range, '-');
    const auto first = to_number<uint64_t>(low);
    const auto last = single ? first : to_number<uint64_t>(range);
    if (!first || !last) return wrong(text, kNoNumbers);
    if (*last < *first) return wrong(text, "has a range that runs backwards");
    if (*last - *first >= kMaxHosts - numbers.size()) return too_many(text);
    for (uint64_t i = 0; i <= *last - *first; ++i) {
      numbers.push_back(fmt::format("{:0{}}", *first + i, low.size()));
    }
  }
  return numbers;
}

constexpr std::string_view kAddress = "addr=";

struct Hosts {
  std::vector<Host> all;
  std::map<std::string, std::string> places;  // where each name is, for errors about duplicates
};

// `place`: the line; empty: the command line.
Result<void> add_host(Hosts& hosts, const std::string& target, const std::string& address,
                      const std::string& place) {
  RETURN_IF_ERROR(check_host_name(target));
  const std::string name = target.substr(target.rfind('@') + 1);
  if (const auto [first, added] = hosts.places.emplace(name, place); !added) {
    const std::string cure =
        place.empty() ? ": leave one out"
                      : fmt::format(" (first in {}): remove one of the lines", first->second);
    return invalid("'{}' is named twice{}", name, cure);
  }
  hosts.all.push_back({name, target, address});
  return {};
}

// MPICH's HOST:8. An IPv6 address has more colons.
std::string without_slots(const std::string& word) {
  static const std::regex slots("^([^:]+):[0-9]+$");
  return std::regex_replace(word, slots, "$1");
}

// Options of MPI implementations after a host.
bool is_ignored(std::string_view word) {
  constexpr std::string_view kKnown[] = {"slots=", "max_slots=", "max-slots=", "cpu="};
  return std::ranges::any_of(kKnown, [&](auto known) { return word.starts_with(known); });
}

Result<void> add_line(const std::string& line, const std::string& place, Hosts& hosts) {
  std::istringstream words(line.substr(0, line.find('#')));
  std::string first;
  if (!(words >> first)) return {};
  ASSIGN_OR_RETURN(const auto names, expand_names(without_slots(first)));
  std::string address;
  for (std::string word; words >> word;) {
    if (word.starts_with(kAddress) && word.size() > kAddress.size()) {
      address = word.substr(kAddress.size());
    } else if (!is_ignored(word)) {
      return invalid("'{}' is not known: a line is HOST [addr=ADDRESS]", printable(word));
    }
  }
  if (!address.empty() && names.size() > 1) {
    return invalid("{} hosts cannot have one address: write a line for each", names.size());
  }
  for (const std::string& name : names) RETURN_IF_ERROR(add_host(hosts, name, address, place));
  return {};
}

Result<std::vector<Host>> slurm_hosts() {
  for (const char* name : {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const char* nodes = std::getenv(name);
    if (nodes != nullptr && *nodes != '\0') return parse_host_words(nodes);
  }
  return invalid(
      "--hosts slurm: SLURM_JOB_NODELIST is not set here: run it in a job, as with salloc or "
      "sbatch, or name the hosts");
}

bool is_file(const std::string& value) {
  std::error_code ignored;
  const auto status = std::filesystem::status(value, ignored);
  return value.find('/') != value.npos ||
         (std::filesystem::exists(status) && !std::filesystem::is_directory(status));
}

constexpr std::string_view kHost = "{host}";
constexpr std::string_view kCommand = "{command}";

// No launcher may ask for input, because it has no terminal. srun and kubectl pass standard input
// on; its end ends the agent.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kLaunchers = {{
    {"ssh", "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 {host}"},
    {"srun", "srun --nodes=1 --ntasks=1 --overlap --unbuffered --nodelist={host}"},
    {"kubectl", "kubectl exec -i {host} --"},
}};

bool holds(std::string_view word, std::string_view mark) { return word.find(mark) != word.npos; }

std::string replaced(std::string word, std::string_view mark, const std::string& value) {
  for (size_t at = word.find(mark); at != word.npos; at = word.find(mark, at + value.size())) {
    word.replace(at, mark.size(), value);
  }
  return word;
}

// Whether this program passes its words to a shell on the other host.
bool joins_words(std::string_view program) {
  const std::string_view name = program.substr(program.rfind('/') + 1);
  return name == "ssh" || name == "rsh" || name == "remsh";
}

}  // namespace

Result<std::vector<std::string>> expand_names(std::string_view text) {
  std::vector<std::string> names;
  std::vector<std::string> item{""};  // the names of the item that is being read
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == ',') {
      if (item.front().empty()) return wrong(text, "has an empty name");
      if (names.size() + item.size() > kMaxHosts) return too_many(text);
      std::ranges::move(item, std::back_inserter(names));
      item = {""};
    } else if (c == '[') {  // multiplies them
      const size_t close = text.find(']', i);
      if (close == text.npos) return wrong(text, "opens a bracket and does not close it");
      ASSIGN_OR_RETURN(const auto numbers, numbers_of(text, text.substr(i + 1, close - i - 1)));
      if (item.size() * numbers.size() > kMaxHosts) return too_many(text);
      std::vector<std::string> longer;
      for (const std::string& name : item) {
        for (const std::string& number : numbers) longer.push_back(name + number);
      }
      item = std::move(longer);
      i = close;
    } else if (c == ']') {
      return wrong(text, "closes a bracket that it has not opened");
    } else {
      for (std::string& name : item) name += c;
    }
  }
  return names;
}

Result<void> check_host_name(const std::string& host) {
  const bool word = std::ranges::all_of(host, [](char c) { return c > ' ' && c <= '~'; });
  const bool named = !host.empty() && !host.ends_with('@') && !host.starts_with('@');
  if (named && host[0] != '-' && host[host.rfind('@') + 1] != '-' && word) return {};
  return invalid("'{}' is no host: write --hosts node1,node2", printable(host));
}

Result<std::vector<Host>> parse_host_file(std::string_view text, std::string_view file) {
  Hosts hosts;
  std::istringstream lines{std::string(text)};
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto added = add_line(line, fmt::format("line {}", ++number), hosts);
    if (!added) {
      return fail(added.error().code, "{}, line {}: {}", printable(file), number,
                  added.error().message);
    }
  }
  if (!hosts.all.empty()) return hosts.all;
  return invalid("{} names no host: write one on each line", printable(file));
}

Result<std::vector<Host>> parse_host_words(std::string_view text) {
  ASSIGN_OR_RETURN(const auto names, expand_names(text));
  Hosts hosts;
  for (const std::string& name : names) RETURN_IF_ERROR(add_host(hosts, name, "", ""));
  return hosts.all;
}

Result<std::vector<Host>> read_hosts(const std::string& value) {
  if (value == "slurm") return slurm_hosts();
  if (!is_file(value)) return parse_host_words(value);
  ASSIGN_OR_RETURN(const auto text, cli::read_text(value));
  return parse_host_file(text, value);
}

Result<Launcher> Launcher::parse(const std::string& text) {
  const auto known =
      std::ranges::find(kLaunchers, text, &std::pair<std::string_view, std::string_view>::first);
  auto words = cli::shell_words(known == kLaunchers.end() ? text : std::string(known->second));
  if (!words) return fail(words.error().code, "--launch: " + words.error().message);
  if (words->empty() || words->front().empty()) {
    return invalid("--launch is empty: write --launch ssh");
  }
  if (std::ranges::none_of(*words, [](const auto& word) { return holds(word, kHost); })) {
    words->emplace_back(kHost);
  }
  return Launcher(std::move(*words));
}

std::vector<std::string> Launcher::command(const Host& host,
                                           std::span<const std::string> words) const {
  std::vector<std::string> all;
  bool placed = false;
  for (const std::string& word : words_) {
    placed = placed || holds(word, kCommand);
    all.push_back(replaced(replaced(word, kHost, host.target), kCommand, cli::shell_line(words)));
  }
  if (placed) return all;
  const bool quoted = joins_words(words_.front());
  for (const std::string& word : words) all.push_back(quoted ? cli::shell_quoted(word) : word);
  return all;
}

Result<Targets> targets_of(const cli::HostsFlags& flags) {
  ASSIGN_OR_RETURN(auto hosts, read_hosts(flags.hosts));
  ASSIGN_OR_RETURN(auto launcher, Launcher::parse(flags.launch));
  return Targets{std::move(hosts), std::move(launcher)};
}

}  // namespace pacecar::hosts
