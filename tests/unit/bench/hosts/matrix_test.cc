// Schedules of pairs, and the hosts and pairs of a matrix that are outliers.
#include "bench/hosts/matrix.h"

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "bench/hosts/outliers.h"
#include "bench/hosts/pair_results.h"

namespace pacecar::test::matrix_test {
namespace {

using namespace hosts;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

std::map<std::pair<size_t, size_t>, size_t> counted(const std::vector<Round>& rounds) {
  std::map<std::pair<size_t, size_t>, size_t> counts;
  for (const Round& round : rounds) {
    for (const Pair& pair : round) ++counts[{pair.sender, pair.receiver}];
  }
  return counts;
}

void expect_disjoint(const std::vector<Round>& rounds) {
  for (const Round& round : rounds) {
    std::set<size_t> busy;
    for (const Pair& pair : round) {
      EXPECT_TRUE(busy.insert(pair.sender).second);
      EXPECT_TRUE(busy.insert(pair.receiver).second);
    }
  }
}

TEST(ScheduleTest, EachOrderedPairIsMeasuredOnceAndEachHostOncePerRound) {
  for (size_t hosts = 2; hosts <= 65; ++hosts) {
    for (const std::string_view pairs : {"disjoint", "all"}) {
      const std::vector<Round> rounds = schedule(hosts, pairs);
      const auto counts = counted(rounds);
      EXPECT_THAT(counts, SizeIs(hosts * (hosts - 1)));
      for (const auto& [pair, count] : counts) {
        EXPECT_EQ(count, 1U);
        EXPECT_NE(pair.first, pair.second);
        EXPECT_LT(std::max(pair.first, pair.second), hosts);
      }
      expect_disjoint(rounds);
      const size_t fewest = 2 * (hosts - 1 + hosts % 2);
      EXPECT_THAT(rounds, SizeIs(pairs == "all" ? hosts * (hosts - 1) : fewest));
    }
  }
}

TEST(ScheduleTest, RingPairsEachHostWithTheNextInBothDirections) {
  for (size_t hosts = 2; hosts <= 65; ++hosts) {
    const std::vector<Round> rounds = schedule(hosts, "ring");
    const auto counts = counted(rounds);
    EXPECT_THAT(counts, SizeIs(hosts == 2 ? 2 : 2 * hosts));
    for (const auto& [pair, count] : counts) {
      EXPECT_EQ(count, 1U);
      const size_t ahead = (pair.second + hosts - pair.first) % hosts;
      EXPECT_TRUE(ahead == 1 || ahead == hosts - 1);
    }
    expect_disjoint(rounds);
    EXPECT_LE(rounds.size(), 6U);
  }
}

TEST(ScheduleTest, FewerThanTwoHostsHaveNoPair) {
  EXPECT_THAT(schedule(0, "disjoint"), IsEmpty());
  EXPECT_THAT(schedule(1, "ring"), IsEmpty());
}

const Quantity kBandwidth{"bandwidth", "Gb/s", true};
const Quantity kLatency{"half a round trip", "us", false};

// Values of 100 with noise, each multiplied by `change`.
Matrix made_up(size_t hosts, double noise, const std::function<double(size_t, size_t)>& change) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> around(1 - noise, 1 + noise);
  Matrix matrix(hosts);
  for (size_t i = 0; i < hosts; ++i) {
    for (size_t j = 0; j < hosts; ++j) {
      if (i != j) matrix.set(i, j, 100 * around(random) * change(i, j));
    }
  }
  return matrix;
}

std::vector<std::string> judged(const Matrix& matrix, const Quantity& quantity = kBandwidth) {
  std::vector<std::string> names;
  for (size_t i = 0; i < matrix.hosts(); ++i) names.push_back("h" + std::to_string(i));
  return sentences_of(find_outliers(matrix, quantity), names, quantity);
}

TEST(OutliersTest, NoiseMakesNoOutlier) {
  for (const double noise : {0.0, 0.01, 0.1, 0.3}) {
    for (const size_t hosts : {2, 3, 4, 16, 64}) {
      const Matrix matrix = made_up(hosts, noise, [](size_t, size_t) { return 1.0; });
      EXPECT_THAT(judged(matrix), IsEmpty()) << hosts << " hosts, " << noise;
      EXPECT_THAT(judged(matrix, kLatency), IsEmpty()) << hosts << " hosts, " << noise;
    }
  }
}

Matrix ring_of(const Matrix& all) {
  Matrix matrix(all.hosts());
  for (const Round& round : schedule(all.hosts(), "ring")) {
    for (const Pair& pair : round) {
      matrix.set(pair.sender, pair.receiver, *all.at(pair.sender, pair.receiver));
    }
  }
  return matrix;
}

TEST(OutliersTest, RingShowsSlowHostsAndPairs) {
  const auto none = [](size_t, size_t) { return 1.0; };
  const auto host = [](size_t i, size_t j) { return i == 5 || j == 5 ? 0.3 : 1.0; };
  const auto pair = [](size_t i, size_t j) { return i == 5 && j == 6 ? 0.3 : 1.0; };
  for (const size_t hosts : {8, 16, 64}) {
    EXPECT_THAT(judged(ring_of(made_up(hosts, 0.3, none))), IsEmpty()) << hosts;
    EXPECT_THAT(judged(ring_of(made_up(hosts, 0.02, host))),
                ElementsAre(HasSubstr("h5 is slow in both directions with every peer")))
        << hosts;
    EXPECT_THAT(judged(ring_of(made_up(hosts, 0.02, pair))),
                ElementsAre(HasSubstr("only the pair h5 -> h6")))
        << hosts;
  }
}

TEST(OutliersTest, ASlowHostIsNamedOnceAndNotItsPairs) {
  for (const size_t hosts : {3, 4, 5, 16, 64}) {
    const auto slow = [](size_t i, size_t j) { return i == 1 || j == 1 ? 0.5 : 1.0; };
    EXPECT_THAT(judged(made_up(hosts, 0.02, slow)),
                ElementsAre(HasSubstr("h1 is slow in both directions with every peer: ")))
        << hosts;
    const auto late = [](size_t i, size_t j) { return i == 1 || j == 1 ? 3.0 : 1.0; };
    EXPECT_THAT(judged(made_up(hosts, 0.02, late), kLatency),
                ElementsAre(HasSubstr("h1 is slow in both directions with every peer: ")))
        << hosts;
  }
}

TEST(OutliersTest, SlowDirectionOfAHostIsNamed) {
  const auto sends = [](size_t i, size_t) { return i == 2 ? 0.5 : 1.0; };
  EXPECT_THAT(judged(made_up(8, 0.02, sends)),
              ElementsAre(HasSubstr("h2 sends slowly to every peer: ")));
  const auto receives = [](size_t, size_t j) { return j == 2 ? 0.5 : 1.0; };
  EXPECT_THAT(judged(made_up(8, 0.02, receives)),
              ElementsAre(HasSubstr("h2 receives slowly from every peer: ")));
}

TEST(OutliersTest, SlowPairIsNamedWithItsDirections) {
  const auto one = [](size_t i, size_t j) { return i == 2 && j == 5 ? 0.4 : 1.0; };
  EXPECT_THAT(judged(made_up(8, 0.02, one)),
              ElementsAre(HasSubstr("only the pair h2 -> h5 is slow: ")));
  const auto both = [](size_t i, size_t j) {
    return (i == 2 && j == 5) || (i == 5 && j == 2) ? 0.4 : 1.0;
  };
  EXPECT_THAT(judged(made_up(8, 0.02, both)),
              ElementsAre(HasSubstr("only the pair h2 <-> h5 is slow, in both directions: ")));
}

TEST(OutliersTest, SeveralPairsOfOneHostAreOneSentence) {
  const auto some = [](size_t i, size_t j) { return i == 0 && j >= 5 ? 0.4 : 1.0; };
  EXPECT_THAT(
      judged(made_up(9, 0.02, some)),
      ElementsAre(HasSubstr("h0 sends slowly to 4 peers, not the others (h5, h6, h7, h8)")));
}

TEST(OutliersTest, SlowHostAndSlowPairAreBothNamed) {
  const auto change = [](size_t i, size_t j) {
    if (i == 1 || j == 1) return 0.5;
    return i == 3 && j == 4 ? 0.3 : 1.0;
  };
  EXPECT_THAT(
      judged(made_up(10, 0.02, change)),
      ElementsAre(HasSubstr("h1 is slow in both directions"), HasSubstr("only the pair h3 -> h4")));
}

TEST(OutliersTest, SmallDifferencesWithoutNoiseAreNoOutliers) {
  const auto little = [](size_t i, size_t) { return i == 1 ? 0.95 : 1.0; };
  EXPECT_THAT(judged(made_up(16, 0.0001, little)), IsEmpty());
}

TEST(OutliersTest, HostsThatWereNotMeasuredAreNotJudged) {
  Matrix matrix(5);
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      if (i != j) matrix.set(i, j, i == 0 && j == 1 ? 20 : 100);
    }
  }
  EXPECT_THAT(judged(matrix), ElementsAre(HasSubstr("only the pair h0 -> h1")));
  EXPECT_THAT(judged(Matrix(5)), IsEmpty());
}

TEST(MatrixTest, TextHasSendersInRowsAndReceiversInColumns) {
  Matrix matrix(3);
  matrix.set(0, 1, 92.123);
  matrix.set(1, 0, 1234.5);
  matrix.set(2, 0, 0.5);
  EXPECT_EQ(to_text(matrix, {"gpu01.lan", "gpu02.lan", "gpu03.lan"}, kBandwidth),
            "bandwidth in Gb/s: rows send, columns receive\n"
            "from \\ to   gpu01   gpu02   gpu03\n"
            "gpu01               92.12       -\n"
            "gpu02        1234               -\n"
            "gpu03       0.500       -\n");
  const Matrix large =
      made_up(17, 0, [](size_t i, size_t j) { return i == 3 && j == 4 ? 0.1 : 1; });
  std::vector<std::string> names;
  for (size_t i = 0; i < 17; ++i) names.push_back("gpu" + std::to_string(i));
  EXPECT_THAT(to_text(large, names, kBandwidth), HasSubstr("\ngpu3      100.0     10.00  gpu4 "));
}

nlohmann::json bw_result(double gbits) {
  return {{"bytes", static_cast<uint64_t>(gbits * 1e9 / 8)}, {"seconds", 1.0}};
}

TEST(PairResultsTest, FigureIsReadFromTheResultsOfATest) {
  EXPECT_DOUBLE_EQ(*figure_of("bw", bw_result(10)), 10);
  EXPECT_DOUBLE_EQ(*figure_of("bw", {bw_result(1), bw_result(2)}), 2);
  EXPECT_DOUBLE_EQ(*figure_of("lat", {{{"t_typical", 5.0}}, {{"t_typical", 9.0}}}), 5);
  for (const char* nonsense : {"[]", "{}", "null", R"({"bytes":1,"seconds":0})", "7"}) {
    EXPECT_FALSE(figure_of("bw", nlohmann::json::parse(nonsense))) << nonsense;
    EXPECT_FALSE(figure_of("lat", nlohmann::json::parse(nonsense))) << nonsense;
  }
}

TEST(PairResultsTest, FailuresAndMissedThresholdsAreSentences) {
  PairResults results({{"a", "a", ""}, {"b", "b", ""}, {"c", "c", ""}, {"d", "d", ""}}, "bw",
                      false);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      if (i != j) results.add({.pair = {i, j}, .results = bw_result(i == 1 && j == 2 ? 50 : 100)});
    }
    results.add({.pair = {3, i}, .results = {}, .error = "no route"});
    results.add({.pair = {i, 3}, .results = {}, .error = "no route"});
  }
  EXPECT_FALSE(results.complete());
  EXPECT_TRUE(results.thresholds_met(0.4));
  EXPECT_FALSE(results.thresholds_met(0.8));
  const std::string text = results.text(0.8);
  EXPECT_THAT(text,
              HasSubstr("! only the pair b -> c is slow: 50% below other pairs of its hosts (50"));
  EXPECT_THAT(text, HasSubstr("! b -> c misses --least 0.8: 50% below a typical pair"));
  EXPECT_THAT(text, HasSubstr("! d: all 6 measurements with it failed, the first with: no route"));
  EXPECT_THAT(text, Not(HasSubstr("a -> d failed")));
  const auto document = results.document(0.8, {{"test", "bw"}});
  EXPECT_EQ(document["pairs"].size(), 12U);
  EXPECT_EQ(document["slow_pairs"].size(), 1U);
  EXPECT_EQ(document["missed"].size(), 1U);
}

TEST(PairResultsTest, MedianIsThatOfThePrintedFigures) {
  PairResults results({{"a", "a", ""}, {"b", "b", ""}, {"c", "c", ""}}, "bw", false);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      if (i != j) results.add({.pair = {i, j}, .results = bw_result(i == 2 || j == 2 ? 50 : 100)});
    }
  }
  EXPECT_THAT(results.text(0),
              HasSubstr("\nmedian 50.00 Gb/s, from 50.00 to 100.0; a typical pair "));
  EXPECT_EQ(results.document(0, {})["median"], 50);
}

}  // namespace
}  // namespace pacecar::test::matrix_test
