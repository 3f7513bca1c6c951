#include "bench/hosts/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

#include "bench/hosts/nodelist.h"
#include "bench/perf/files.h"
#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"

namespace pacecar::hosts {
namespace {

constexpr std::string_view kAddress = "addr=";
// Options of MPI implementations after a host, which are ignored.
constexpr std::array<std::string_view, 4> kPassedOver = {
    "slots=", "max_slots=", "max-slots=", "cpu="};

Host host_of(const std::string& target) {
  return {target.substr(target.rfind('@') + 1), target, ""};
}

// Keeps where each host was named, for errors about duplicates.
class Hosts {
 public:
  explicit Hosts(std::string cure) : cure_(std::move(cure)) {}

  Result<void> add(Host host, const std::string& place) {
    RETURN_IF_ERROR(check_host_name(host.target));
    const auto [first, added] = places_.emplace(host.name, place);
    if (!added) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' is named twice{}: {}", host.name,
                      first->second.empty() ? "" : " (first in " + first->second + ")", cure_));
    }
    hosts_.push_back(std::move(host));
    return {};
  }
  std::vector<Host> take() { return std::move(hosts_); }

 private:
  std::string cure_;
  std::map<std::string, std::string> places_;
  std::vector<Host> hosts_;
};

// MPICH's HOST:8. An IPv6 address has more colons.
std::string without_slots(const std::string& word) {
  const size_t colon = word.find(':');
  const bool one = colon != word.npos && word.find(':', colon + 1) == word.npos;
  const bool digits = one && colon + 1 < word.size() &&
                      word.find_first_not_of("0123456789", colon + 1) == word.npos;
  return digits ? word.substr(0, colon) : word;
}

bool passed_over(std::string_view word) {
  return std::ranges::any_of(kPassedOver, [&](auto known) { return word.starts_with(known); });
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
    } else if (!passed_over(word)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is not known: a line is HOST [addr=ADDRESS]", printable(word)));
    }
  }
  if (!address.empty() && names.size() > 1) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} hosts cannot have one address: write a line for each", names.size()));
  }
  for (const std::string& name : names) {
    Host host = host_of(name);
    host.address = address;
    RETURN_IF_ERROR(hosts.add(std::move(host), place));
  }
  return {};
}

Result<std::vector<Host>> slurm_hosts() {
  for (const char* name : {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const char* nodes = std::getenv(name);
    if (nodes != nullptr && *nodes != '\0') return parse_host_words(nodes);
  }
  return fail(
      ErrorCode::kInvalidArgument,
      "--hosts slurm: SLURM_JOB_NODELIST is not set here: run it in a job, as with salloc or "
      "sbatch, or name the hosts");
}

bool is_file(const std::string& value) {
  std::error_code ignored;
  const auto status = std::filesystem::status(value, ignored);
  return value.find('/') != value.npos ||
         (std::filesystem::exists(status) && !std::filesystem::is_directory(status));
}

}  // namespace

Result<void> check_host_name(const std::string& host) {
  const bool word = std::ranges::all_of(host, [](char c) { return c > ' ' && c <= '~'; });
  const bool named = !host.empty() && !host.ends_with('@') && !host.starts_with('@');
  if (named && host[0] != '-' && host[host.rfind('@') + 1] != '-' && word) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no host: write --hosts node1,node2", printable(host)));
}

Result<std::vector<Host>> parse_host_file(std::string_view text, std::string_view file) {
  Hosts hosts("remove one of the lines");
  std::istringstream lines{std::string(text)};
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto added = add_line(line, fmt::format("line {}", ++number), hosts);
    if (!added) {
      return fail(added.error().code,
                  fmt::format("{}, line {}: {}", printable(file), number, added.error().message));
    }
  }
  std::vector<Host> all = hosts.take();
  if (all.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} names no host: write one on each line", printable(file)));
  }
  return all;
}

Result<std::vector<Host>> parse_host_words(std::string_view text) {
  ASSIGN_OR_RETURN(const auto names, expand_names(text));
  Hosts hosts("leave one out");
  for (const std::string& name : names) {
    RETURN_IF_ERROR(hosts.add(host_of(name), ""));
  }
  return hosts.take();
}

Result<std::vector<Host>> read_hosts(const std::string& value) {
  if (value == "slurm") return slurm_hosts();
  if (!is_file(value)) return parse_host_words(value);
  ASSIGN_OR_RETURN(const auto text, perf::read_text(value));
  return parse_host_file(text, value);
}

}  // namespace pacecar::hosts
