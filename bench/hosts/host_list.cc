#include "bench/hosts/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

#include "bench/perf/files.h"
#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"
#include "transport/base/to_number.h"

namespace pacecar::hosts {
namespace {

tl::unexpected<Error> wrong(std::string_view text, std::string_view why) {
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' {}: write names such as gpu[01-16,20],login1", printable(text), why));
}

// Removes the text up to the first comma outside of brackets.
Result<std::string_view> take_item(std::string_view& left) {
  size_t depth = 0;
  for (size_t i = 0; i <= left.size(); ++i) {
    const char c = i < left.size() ? left[i] : ',';
    if (c == '[' && depth++ > 0) return wrong(left, "has a bracket within brackets");
    if (c == ']' && depth-- == 0) return wrong(left, "closes a bracket that it has not opened");
    if (c != ',' || (depth > 0 && i < left.size())) continue;
    if (depth > 0) return wrong(left, "opens a bracket and does not close it");
    const std::string_view item = left.substr(0, i);
    left.remove_prefix(std::min(left.size(), i + 1));
    return item;
  }
  return wrong(left, "has no end");
}

// The numbers of "01-16,20", as texts.
Result<std::vector<std::string>> numbers_of(std::string_view item, std::string_view ranges) {
  std::vector<std::string> numbers;
  for (bool more = true; more;) {
    const size_t comma = std::min(ranges.find(','), ranges.size());
    const std::string_view range = ranges.substr(0, comma);
    more = comma < ranges.size();
    ranges.remove_prefix(std::min(ranges.size(), comma + 1));
    const size_t dash = std::min(range.find('-'), range.size());
    const std::string_view low = range.substr(0, dash);
    const auto first = to_number<uint64_t>(low);
    const auto last = dash < range.size() ? to_number<uint64_t>(range.substr(dash + 1)) : first;
    if (!first || !last) return wrong(item, "has something else than numbers in its brackets");
    if (*last < *first) return wrong(item, "has a range that runs backwards");
    if (*last - *first >= kMaxHosts - numbers.size()) {
      return wrong(item, fmt::format("stands for more than {} hosts", kMaxHosts));
    }
    for (uint64_t n = *first; n <= *last; ++n) {
      numbers.push_back(fmt::format("{:0{}}", n, low.size()));
    }
  }
  return numbers;
}

// All names of one item; each pair of brackets multiplies them.
Result<std::vector<std::string>> expand_item(std::string_view item) {
  std::vector<std::string> names{""};
  for (std::string_view left = item; !left.empty();) {
    const size_t open = std::min(left.find('['), left.size());
    for (std::string& name : names) name += left.substr(0, open);
    left.remove_prefix(open);
    if (left.empty()) break;
    const size_t close = left.find(']');
    ASSIGN_OR_RETURN(const auto numbers, numbers_of(item, left.substr(1, close - 1)));
    if (names.size() * numbers.size() > kMaxHosts) {
      return wrong(item, fmt::format("stands for more than {} hosts", kMaxHosts));
    }
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    left.remove_prefix(close + 1);
  }
  return names;
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
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is named twice{}", name, cure));
  }
  hosts.all.push_back({name, target, address});
  return {};
}

// MPICH's HOST:8. An IPv6 address has more colons.
std::string without_slots(const std::string& word) {
  const size_t colon = word.find(':');
  const bool one = colon != word.npos && word.find(':', colon + 1) == word.npos;
  const bool digits = one && colon + 1 < word.size() &&
                      word.find_first_not_of("0123456789", colon + 1) == word.npos;
  return digits ? word.substr(0, colon) : word;
}

// Options of MPI implementations after a host.
bool passed_over(std::string_view word) {
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
  for (const std::string& name : names) RETURN_IF_ERROR(add_host(hosts, name, address, place));
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

Result<std::vector<std::string>> expand_names(std::string_view text) {
  std::vector<std::string> names;
  for (std::string_view left = text; !left.empty() || names.empty();) {
    const bool trailing = left.ends_with(',');
    ASSIGN_OR_RETURN(const auto item, take_item(left));
    if (item.empty() || (trailing && left.empty())) return wrong(text, "has an empty name");
    ASSIGN_OR_RETURN(auto expanded, expand_item(item));
    if (names.size() + expanded.size() > kMaxHosts) {
      return wrong(text, fmt::format("stands for more than {} hosts", kMaxHosts));
    }
    std::ranges::move(expanded, std::back_inserter(names));
  }
  return names;
}

Result<void> check_host_name(const std::string& host) {
  const bool word = std::ranges::all_of(host, [](char c) { return c > ' ' && c <= '~'; });
  const bool named = !host.empty() && !host.ends_with('@') && !host.starts_with('@');
  if (named && host[0] != '-' && host[host.rfind('@') + 1] != '-' && word) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no host: write --hosts node1,node2", printable(host)));
}

Result<std::vector<Host>> parse_host_file(std::string_view text, std::string_view file) {
  Hosts hosts;
  std::istringstream lines{std::string(text)};
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto added = add_line(line, fmt::format("line {}", ++number), hosts);
    if (!added) {
      return fail(added.error().code,
                  fmt::format("{}, line {}: {}", printable(file), number, added.error().message));
    }
  }
  if (!hosts.all.empty()) return hosts.all;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} names no host: write one on each line", printable(file)));
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
  ASSIGN_OR_RETURN(const auto text, perf::read_text(value));
  return parse_host_file(text, value);
}

}  // namespace pacecar::hosts
