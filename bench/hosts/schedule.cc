#include "bench/hosts/schedule.h"

#include <utility>

namespace pacecar::hosts {
namespace {

// A tournament by the circle method: one place stays, and the others rotate. With an odd number of
// hosts one place is empty, so that one host has no pair.
std::vector<Round> tournament(size_t hosts) {
  const size_t places = hosts + hosts % 2;
  std::vector<Round> rounds;
  for (size_t turn = 0; turn + 1 < places; ++turn) {
    const auto at = [&](size_t place) {
      return place == 0 ? size_t{0} : 1 + (place - 1 + turn) % (places - 1);
    };
    Round round;
    for (size_t i = 0; i < places / 2; ++i) {
      const Pair pair{at(i), at(places - 1 - i)};
      if (pair.sender < hosts && pair.receiver < hosts) round.push_back(pair);
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

// Rounds of a ring's edges: the even ones, the odd ones, and with an odd number of hosts the last
// one.
std::vector<Round> ring(size_t hosts) {
  std::vector<Round> rounds(2);
  const size_t edges = hosts == 2 ? 1 : hosts;
  for (size_t i = 0; i < edges; ++i) {
    const bool closes = hosts % 2 == 1 && i + 1 == hosts;
    if (closes) rounds.emplace_back();
    rounds[closes ? 2 : i % 2].push_back({i, (i + 1) % hosts});
  }
  if (rounds[1].empty()) rounds.pop_back();
  return rounds;
}

std::vector<Round> both_ways(const std::vector<Round>& rounds) {
  std::vector<Round> all;
  for (const Round& round : rounds) {
    Round back;
    for (const Pair& pair : round) back.push_back({pair.receiver, pair.sender});
    all.push_back(round);
    all.push_back(std::move(back));
  }
  return all;
}

std::vector<Round> one_at_a_time(size_t hosts) {
  std::vector<Round> rounds;
  for (size_t sender = 0; sender < hosts; ++sender) {
    for (size_t receiver = 0; receiver < hosts; ++receiver) {
      if (sender != receiver) rounds.push_back({{sender, receiver}});
    }
  }
  return rounds;
}

}  // namespace

Pairs pairs_of(std::string_view name) {
  if (name == "all") return Pairs::kAll;
  return name == "ring" ? Pairs::kRing : Pairs::kDisjoint;
}

std::vector<Round> schedule(size_t hosts, Pairs pairs) {
  if (hosts < 2) return {};
  switch (pairs) {
    case Pairs::kAll:
      return one_at_a_time(hosts);
    case Pairs::kRing:
      return both_ways(ring(hosts));
    case Pairs::kDisjoint:
      break;
  }
  return both_ways(tournament(hosts));
}

}  // namespace pacecar::hosts
