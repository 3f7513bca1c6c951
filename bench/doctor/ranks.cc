#include "bench/doctor/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <tuple>

#include "bench/doctor/collectives.h"

namespace pacecar::doctor {
namespace {

// A rank is an outlier if its value is at least this many times the others' median, and at least
// this share of the time between two collectives.
constexpr double kTimesOthers = 3;
constexpr double kShareOfPeriod = 0.2;
constexpr double kLeastSeconds = 1e-3;
constexpr size_t kLeastCollectives = 3;
// A process is starved if its share of time runnable without a processor exceeds others' by this.
constexpr double kStarved = 0.25;
// A slow path has messages in flight for at least this share of the time.
constexpr double kBusy = 0.4;
// If a rank's threads are starved for more than this share, its messages may wait for the
// scheduler, so a message that takes less than kTurnSeconds is no sign of a slow path.
constexpr double kSomewhatStarved = 0.1;
constexpr double kTurnSeconds = 10e-3;
// A rank is not reported as late if starvation explains this share of its lateness.
constexpr double kExplained = 0.7;

// The value below which this share of them lies.
double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto place =
      values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

// The largest value, whose it is, and the median of the others.
struct Most {
  size_t rank = 0;
  double value = 0;
  double others = 0;
};

double median_of_others(std::vector<double> values, size_t left_out) {
  values.erase(values.begin() + static_cast<ptrdiff_t>(left_out));
  return quantile(std::move(values), 0.5);
}

Most most_of(const std::vector<double>& values) {
  const auto rank = static_cast<size_t>(std::ranges::max_element(values) - values.begin());
  return {rank, values[rank], median_of_others(values, rank)};
}

// A rank's means over the collectives that all ranks have completed.
struct RankFigures {
  double late_s = 0;  // how much less time it spends in a collective than the rank with the most
  double first_s = 0;
  double taken_s = 0;   // for its GPU to take all messages, by the median
  size_t detailed = 0;  // collectives for which first_s is known
};

struct Table {
  const std::vector<Member>* members = nullptr;
  std::vector<RankFigures> figures;  // as members
  size_t collectives = 0;
  double period_s = 0;

  const Member& member(size_t i) const { return (*members)[i]; }
};

std::vector<CollectiveKey> common_keys(const std::vector<Member>& members) {
  std::vector<CollectiveKey> keys;
  for (const CollectiveKey& key : members.front().order) {
    const auto knows = [&key](const Member& one) { return one.parts.contains(key); };
    if (std::ranges::all_of(members, knows)) keys.push_back(key);
  }
  return keys;
}

Table table_of(const std::vector<Member>& members) {
  Table table{.members = &members, .figures = std::vector<RankFigures>(members.size())};
  const std::vector<CollectiveKey> keys = common_keys(members);
  table.collectives = keys.size();
  if (keys.size() < kLeastCollectives) return table;
  const auto share = 1 / static_cast<double>(keys.size());
  for (const CollectiveKey& key : keys) {
    const auto spent_s = [&key](const Member& one) {
      return one.parts.at(key).ended_s - one.parts.at(key).began_s;
    };
    const double longest = spent_s(*std::ranges::max_element(members, {}, spent_s));
    for (size_t i = 0; i < members.size(); ++i) {
      const Part& part = members[i].parts.at(key);
      RankFigures& to = table.figures[i];
      to.late_s += share * (longest - spent_s(members[i]));
      if (!part.detailed) continue;
      to.first_s += part.first_s;
      ++to.detailed;
    }
  }
  for (size_t i = 0; i < members.size(); ++i) {
    RankFigures& one = table.figures[i];
    one.first_s /= static_cast<double>(std::max<size_t>(one.detailed, 1));
    // Where copies are slow, all are. A GPU that waits for others takes the first messages late.
    one.taken_s =
        quantile(members[i].taken_s, 0.5) * static_cast<double>(members[i].taken_s.size()) * share;
  }
  const auto& parts = members.front().parts;
  table.period_s = (parts.at(keys.back()).ended_s - parts.at(keys.front()).ended_s) /
                   static_cast<double>(keys.size() - 1);
  return table;
}

std::string text_of(const Member& member, const CollectiveKey& key) {
  return fmt::format("{} number {} of {} elements", key.first, key.second,
                     member.begun.at(key)->amount);
}

// The two call different collectives, or with different sizes.
RankFinding mismatch(const Member& odd, const CollectiveKey& key, const Member& other,
                     const CollectiveKey& other_key) {
  return {"mismatch", odd.process, nullptr,
          fmt::format("it calls {}, where {} calls {}: all ranks must call the same collectives "
                      "in one order, with the same sizes and types",
                      text_of(odd, key), name_of(*other.process), text_of(other, other_key))};
}

// The first collectives in which the two differ: among those that both have recorded, or the newest
// of each, if neither has reached the other's.
std::optional<std::pair<CollectiveKey, CollectiveKey>> where_apart(const Member& a,
                                                                   const Member& b) {
  const auto known_to = [](const Member& one, const Member& other) {
    std::vector<CollectiveKey> keys;
    std::ranges::copy_if(one.order, std::back_inserter(keys),
                         [&other](const CollectiveKey& key) { return other.begun.contains(key); });
    return keys;
  };
  if (a.order.empty() || b.order.empty()) return std::nullopt;
  const auto of_a = known_to(a, b);
  const auto of_b = known_to(b, a);
  const auto [at_a, at_b] = std::ranges::mismatch(of_a, of_b);
  if (at_a != of_a.end() && at_b != of_b.end()) return std::pair(*at_a, *at_b);
  // Its record may lack the collective itself, as it holds only the newest ones.
  const auto reached = [](const Member& one, const CollectiveKey& wanted) {
    const auto at = one.begun.lower_bound(wanted);
    return at != one.begun.end() && at->first.first == wanted.first;
  };
  if (reached(b, a.order.back()) || reached(a, b.order.back())) return std::nullopt;
  return std::pair(a.order.back(), b.order.back());
}

std::optional<RankFinding> different_calls(const std::vector<Member>& members) {
  const auto as_first = [&members](const Member& one) {
    return !where_apart(members.front(), one);
  };
  if (std::ranges::all_of(members, as_first)) return std::nullopt;
  const Member* odd = nullptr;
  const Member* other = nullptr;
  size_t most = 0;
  for (const Member& one : members) {
    const auto apart = [&one](const Member& from) { return where_apart(one, from).has_value(); };
    const auto count = static_cast<size_t>(std::ranges::count_if(members, apart));
    if (count <= most) continue;
    most = count;
    odd = &one;
    other = &*std::ranges::find_if(members, apart);
  }
  if (odd == nullptr) return std::nullopt;
  const auto [called, others_called] = *where_apart(*odd, *other);
  return mismatch(*odd, called, *other, others_called);
}

std::optional<RankFinding> different_sizes(const std::vector<Member>& members) {
  const auto call_of = [](const Member& one, const CollectiveKey& key) {
    const ProfiledEvent& event = *one.begun.at(key);
    return std::tuple(event.amount, event.datatype, event.peer);
  };
  for (const CollectiveKey& key : members.front().order) {
    std::vector<const Member*> there;
    for (const Member& one : members) {
      if (one.begun.contains(key)) there.push_back(&one);
    }
    for (const Member* const one : there) {
      const auto differs = [&](const Member* other) {
        return call_of(*one, key) != call_of(*other, key);
      };
      const auto count = static_cast<size_t>(std::ranges::count_if(there, differs));
      if (count == 0 || 2 * count < there.size()) continue;
      const Member& other = **std::ranges::find_if(there, differs);
      return mismatch(*one, key, other, key);
    }
  }
  return std::nullopt;
}

std::optional<RankFinding> starved_host(const Table& table) {
  std::vector<double> starved;
  for (const Member& one : *table.members) starved.push_back(one.process->starved);
  const Most most = most_of(starved);
  if (most.value < most.others + kStarved || most.value < kTimesOthers * most.others) {
    return std::nullopt;
  }
  return RankFinding{
      "slow-host", table.member(most.rank).process, nullptr,
      fmt::format("its threads were ready to run and not let for {:.0f}% of the time ({:.0f}% on "
                  "the other ranks): look there for other programs, its priority, and the limit "
                  "of its cgroup",
                  100 * most.value, 100 * most.others)};
}

// A mean in which a rank may be an outlier. The sentence names its milliseconds, then the others',
// or as a percentage its part of the time between two collectives.
struct MeanRule {
  std::string_view name;
  double RankFigures::*mean;
  bool of_period;
  std::string_view why;
};
constexpr std::array kMeanRules = {
    MeanRule{"late-gpu", &RankFigures::first_s, false,
             "the network waits {:.1f} ms in each collective for its GPU's first data ({:.1f} ms "
             "on the other ranks): its kernels start late; look at what the GPU computes, its "
             "clocks and its temperature"},
    MeanRule{"slow-copy", &RankFigures::taken_s, false,
             "its messages wait {:.1f} ms in each collective for its GPU to take them ({:.1f} ms "
             "on the other ranks): look at PCIe there ('pacecar preflight'), copy engines and "
             "staging"},
    MeanRule{"late-rank", &RankFigures::late_s, true,
             "it comes {:.1f} ms late to each collective, {:.0f}% of the time, and its network is "
             "idle until then: an uneven load; look at its data loader and its disk"},
};

std::optional<RankFinding> outlier(const Table& table, const MeanRule& rule) {
  std::vector<double> means;
  for (const RankFigures& one : table.figures) means.push_back(one.*rule.mean);
  const Most most = most_of(means);
  const Member& member = table.member(most.rank);
  const bool counts = most.value >= kLeastSeconds && most.value >= kShareOfPeriod * table.period_s;
  const bool explained = member.process->starved * table.period_s >= kExplained * most.value;
  if (!counts || explained || most.value < kTimesOthers * most.others) return std::nullopt;
  return RankFinding{
      rule.name, member.process, nullptr,
      fmt::format(fmt::runtime(rule.why), 1e3 * most.value,
                  rule.of_period ? 100 * most.value / table.period_s : 1e3 * most.others)};
}

struct Edge {
  const Member* from = nullptr;
  const Member* to = nullptr;
  double message_s = 0;  // lower quartile of its messages' times
  double busy = 0;       // of the time
};

// On a slow path both ends wait for the network; if only one end waits, the other is late.
std::vector<Edge> edges_of(const Table& table) {
  std::map<int64_t, const Member*> members;
  for (const Member& one : *table.members) members[one.profile->rank] = &one;
  std::vector<Edge> edges;
  for (const Member& from : *table.members) {
    for (const auto& [peer, sent] : from.sent) {
      const auto to = members.find(peer);
      if (to == members.end()) continue;
      const auto received = to->second->received.find(from.profile->rank);
      if (received == to->second->received.end()) continue;
      edges.push_back(
          {&from, to->second,
           std::min(quantile(sent.took_s, 0.25), quantile(received->second.took_s, 0.25)),
           std::min(sent.busy, received->second.busy)});
    }
  }
  return edges;
}

std::vector<Edge> slow_edges(const std::vector<Edge>& edges) {
  std::vector<double> times;
  for (const Edge& edge : edges) times.push_back(edge.message_s);
  std::vector<Edge> slow;
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto& [from, to, message_s, busy] = edges[i];
    const bool starved = std::max(from->process->starved, to->process->starved) > kSomewhatStarved;
    if (starved && message_s < kTurnSeconds) continue;
    if (busy >= kBusy && message_s >= kTimesOthers * median_of_others(times, i)) {
      slow.push_back(edges[i]);
    }
  }
  return slow;
}

// Whether processes that are no ranks of the communicator receive over a rank's link.
bool link_is_shared(const Process& process, const std::vector<Member>& members) {
  const auto is_member = [&](uint64_t pid) {
    return std::ranges::any_of(members, [&](const Member& one) {
      return one.process->host == process.host && one.process->pid == pid;
    });
  };
  return std::ranges::any_of(process.nics, [&](const Nic& nic) {
    return std::ranges::any_of(nic.sharers, [&](const Sharer& sharer) {
      return sharer.in_demand_bps > 0 && !is_member(sharer.pid);
    });
  });
}

// A rank with slow paths in both directions.
const Member* common_end(const std::vector<Edge>& slow) {
  for (const Edge& out : slow) {
    for (const Edge& in : slow) {
      if (in.to == out.from && in.from != out.to) return out.from;
    }
  }
  return nullptr;
}

std::optional<RankFinding> slow_network(const Table& table) {
  const std::vector<Edge> edges = edges_of(table);
  if (edges.size() < 2) return std::nullopt;
  const std::vector<Edge> slow = slow_edges(edges);
  if (slow.empty()) return std::nullopt;
  const Edge& worst = *std::ranges::max_element(slow, {}, &Edge::message_s);
  const std::string cost = fmt::format("a message takes {:.1f} ms", 1e3 * worst.message_s);
  if (link_is_shared(*worst.to->process, *table.members)) {
    return RankFinding{"incast", worst.to->process, worst.from->process,
                       fmt::format("{} from {}: other programs receive over the same link there",
                                   cost, name_of(*worst.from->process))};
  }
  if (const Member* const rank = common_end(slow)) {
    return RankFinding{"slow-nic", rank->process, nullptr,
                       fmt::format("{} on its paths, both to and from it, and less on the others: "
                                   "its NIC or its link is slow; 'pacecar preflight' there",
                                   cost)};
  }
  return RankFinding{"slow-path", worst.from->process, worst.to->process,
                     fmt::format("{} to {}, more than on the other paths: a link or a switch "
                                 "between is slow; 'pacecar bw' on the same path measures it",
                                 cost, name_of(*worst.to->process))};
}

}  // namespace

std::vector<RankFinding> examine_ranks(const Job& job) {
  std::vector<RankFinding> mismatches;
  std::vector<RankFinding> findings;
  for (const auto& [name, members] : communicators(job)) {
    auto mismatch = different_calls(members);
    if (!mismatch) mismatch = different_sizes(members);
    if (mismatch) mismatches.push_back(*mismatch);
    const Table table = table_of(members);
    // In the order of causes: a starved rank is late as well.
    const auto add = [&](const std::optional<RankFinding>& found) {
      if (found) findings.push_back(*found);
    };
    add(starved_host(table));
    if (table.collectives < kLeastCollectives) continue;
    add(slow_network(table));
    for (const MeanRule& rule : kMeanRules) add(outlier(table, rule));
  }
  mismatches.insert(mismatches.end(), findings.begin(), findings.end());
  return mismatches;
}

}  // namespace pacecar::doctor
