#include "transport/engine/nic_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace pacecar {
namespace {

using Candidates = std::span<const NicCandidate>;

struct KindPrefix {
  NicKind kind;
  std::string_view prefix;
};
constexpr std::array kPrefixes = {KindPrefix{NicKind::kSoftUdp, "soft:udp:"},
                                  KindPrefix{NicKind::kSoftRaw, "soft:raw:"}};

std::string_view prefix_of(NicKind kind) {
  for (const KindPrefix& known : kPrefixes) {
    if (known.kind == kind) return known.prefix;
  }
  return {};
}

std::string names_of(Candidates candidates) {
  std::string names;
  for (const NicCandidate& candidate : candidates) {
    if (!candidate.usable || candidate.kind == NicKind::kSoftRaw) continue;
    names += (names.empty() ? "" : ", ") + candidate.name();
  }
  return names.empty() ? "none" : names;
}

bool is_named(const NicCandidate& candidate, std::string_view entry) {
  return entry == candidate.device || entry == candidate.name();
}

// Whether the entry could name a NIC, were it there.
Result<void> check_form(std::string_view entry, Candidates candidates) {
  const auto is_entry = [entry](const NicCandidate& c) { return is_named(c, entry); };
  if (std::ranges::any_of(candidates, is_entry)) return {};
  std::string_view device = entry;
  for (const KindPrefix& known : kPrefixes) {
    if (entry.starts_with(known.prefix)) device.remove_prefix(known.prefix.size());
  }
  if (!device.empty() && device.find(':') == std::string_view::npos) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("PACECAR_NICS has the entry '{}', which names no NIC of this version: "
                          "write soft:udp:INTERFACE or the name of an RDMA device",
                          entry));
}

Result<NicCandidate> find(std::string_view entry, Candidates candidates) {
  for (const NicCandidate& candidate : candidates) {
    if (candidate.usable && is_named(candidate, entry)) return candidate;
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("PACECAR_NICS names '{}', but there is no such NIC that is up and has an "
                          "address: choose from {}",
                          entry, names_of(candidates)));
}

// What is chosen for one who names nothing: the first of these groups that has any.
std::vector<NicCandidate> by_default(Candidates candidates) {
  const std::array groups = {std::pair{NicKind::kVerbs, false}, std::pair{NicKind::kSoftUdp, false},
                             std::pair{NicKind::kSoftUdp, true}};
  for (const auto& [kind, loopback] : groups) {
    std::vector<NicCandidate> chosen;
    for (const NicCandidate& candidate : candidates) {
      if (candidate.usable && candidate.kind == kind && candidate.loopback == loopback) {
        chosen.push_back(candidate);
      }
    }
    if (!chosen.empty()) return chosen;
  }
  return {};
}

}  // namespace

std::string NicCandidate::name() const { return std::string(prefix_of(kind)) + device; }

Result<std::vector<NicCandidate>> choose_nics(std::string_view list, Candidates candidates) {
  std::vector<NicCandidate> named;
  std::vector<std::string_view> excluded;
  bool by_name = false;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const bool exclude = entry.starts_with('^');
    if (exclude) entry.remove_prefix(1);
    if (auto ok = check_form(entry, candidates); !ok) return tl::unexpected(ok.error());
    if (exclude) {
      excluded.push_back(entry);
      continue;
    }
    const auto found = find(entry, candidates);
    if (!found) return tl::unexpected(found.error());
    by_name = true;
    const auto is_found = [&](const NicCandidate& c) { return c.name() == found->name(); };
    if (std::ranges::none_of(named, is_found)) named.push_back(*found);
  }
  std::vector<NicCandidate> left =
      by_name ? named : std::vector(candidates.begin(), candidates.end());
  std::erase_if(left, [&](const NicCandidate& candidate) {
    return std::ranges::any_of(excluded, [&](auto entry) { return is_named(candidate, entry); });
  });
  std::vector<NicCandidate> chosen = by_name ? std::move(left) : by_default(left);
  if (chosen.empty()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("PACECAR_NICS leaves no NIC: choose from {}", names_of(candidates)));
  }
  return chosen;
}

}  // namespace pacecar
