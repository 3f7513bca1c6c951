// How pacecar doctor reads documents, which any process may have written.
#include "bench/doctor/documents.h"

#include <gmock/gmock.h>

#include "transport/api/state_document.h"
#include "transport/base/prng.h"

namespace pacecar::test::documents_test {
namespace {

using namespace doctor;
using Json = nlohmann::json;
using testing::HasSubstr;

// The document of a process that sends to one peer and receives from another.
Json document(uint64_t sent, uint64_t acknowledged, uint64_t in_flight, Duration uptime) {
  FlowStatus sending{{.sending = true,
                      .state = FlowState::kOpen,
                      .peer_address = "192.0.2.7:4791",
                      .number = 42,
                      .connections = 2}};
  sending.peer.fill(7);
  sending.stats = {.backlog = 5, .acked = acknowledged, .in_flight = in_flight, .sent = sent};
  sending.explanation = {
      .limited_by = LimitedBy::kGrant, .rate = Rate::from_gbps(3), .grant = Rate::from_gbps(2)};
  sending.rtt = Duration::from_us(70);
  FlowStatus receiving{{.peer_address = "192.0.2.8:4791", .number = 1, .connections = 1}};
  receiving.requests = 3;
  receiving.still = Duration::from_s(6);
  receiving.awaits_peer = true;
  ProcessState state;
  state.name = {.host = "node1", .program = "train", .pid = 12, .rank = 3};
  state.uptime = uptime;
  state.nics.push_back({.info = {.name = "soft:udp:eth0"},
                        .identity = {},
                        .line_rate = Rate::from_gbps(25),
                        .statistics = {},
                        .flows = {sending, receiving},
                        .sharers = {{.process = 12,
                                     .program = "train",
                                     .directions = {{{.claim = {.demand = Rate::from_gbps(9)},
                                                      .taking = Rate::from_gbps(4),
                                                      .lives = true}}}}}});
  return Json::parse(state_document(state));
}

TEST(DoctorJob, ProcessesOfOnePidOnOneHostAreToldApart) {
  const auto first = [](const std::string& identity) {
    doctor::Process process{.host = "node1", .program = "train", .pid = 1};
    process.nics.emplace_back().identity = identity;
    return process;
  };
  Job job;
  job.add(first("3fa2c1aa"));
  EXPECT_EQ(name_of(job.processes()[0]), "train (node1, pid 1)");
  job.add(first("9b00aa11"));
  EXPECT_EQ(name_of(job.processes()[0]), "train (node1, pid 1 of 3fa2c1)");
  EXPECT_EQ(name_of(job.processes()[1]), "train (node1, pid 1 of 9b00aa)");
}

TEST(DoctorDocumentsTest, StateDocumentIsReadCompletely) {
  const auto process = read_samples({nullptr, document(900, 500, 100, Duration::from_s(10))});
  ASSERT_TRUE(process) << process.error().message;
  EXPECT_EQ(name_of(*process), "rank 3 (node1, pid 12)");
  const doctor::Nic& nic = process->nics.at(0);
  EXPECT_EQ(nic.identity, std::string(32, '0'));
  EXPECT_EQ(nic.line_rate_bps, 25e9);
  const doctor::Sharer& sharer = nic.sharers.at(0);
  EXPECT_EQ(sharer.pid, 12U);
  EXPECT_EQ(sharer.program, "train");
  EXPECT_EQ(sharer.out_demand_bps, 9e9);
  EXPECT_EQ(sharer.out_part_bps, 4e9);
  EXPECT_EQ(sharer.in_demand_bps, 0);
  const Flow& sending = nic.flows.at(0);
  EXPECT_TRUE(sending.sending);
  EXPECT_EQ(sending.peer, "192.0.2.7:4791");
  EXPECT_EQ(sending.limited_by, "grant");
  EXPECT_EQ(sending.grant_bps, 2e9);
  EXPECT_DOUBLE_EQ(sending.rtt_s, 70e-6);
  EXPECT_FALSE(sending.goodput_bps) << "one document gives no rate";
  EXPECT_EQ(sending.repeated_bytes, 300U);
  EXPECT_EQ(sending.tried_bytes, 900U);
  const Flow& receiving = nic.flows.at(1);
  EXPECT_FALSE(receiving.sending);
  EXPECT_TRUE(receiving.awaits_peer);
  EXPECT_EQ(receiving.requests, 3U);
  EXPECT_DOUBLE_EQ(receiving.still_s, 6);
}

TEST(DoctorDocumentsTest, TwoDocumentsGiveRates) {
  const auto process = read_samples({document(1'000, 600, 100, Duration::from_s(10)),
                                     document(101'400, 100'600, 200, Duration::from_s(12))});
  ASSERT_TRUE(process);
  const Flow& flow = process->nics.at(0).flows.at(0);
  EXPECT_DOUBLE_EQ(flow.goodput_bps.value(), 8 * 100'000 / 2.0);
  EXPECT_EQ(flow.tried_bytes, 100'400U);
  EXPECT_EQ(flow.repeated_bytes, 300U) << "600 bytes in all, 300 of them before the first document";
}

TEST(DoctorDocumentsTest, TwoDocumentsShowTheMostFrequentLimit) {
  Json before = document(1'000, 600, 100, Duration::from_s(10));
  Json now = document(101'400, 100'600, 200, Duration::from_s(12));
  const auto limited_by = [&] {
    return read_samples({before, now})->nics.at(0).flows.at(0).limited_by;
  };
  EXPECT_EQ(limited_by(), "grant")
      << "without counts between both documents the newest limit counts";
  Json& earlier = before["nics"][0]["flows"][0]["limits"];
  Json& later = now["nics"][0]["flows"][0]["limits"];
  earlier["line"] = 5000U;
  later = earlier;
  later["network"] = 120U;
  later["host"] = 280U;
  EXPECT_EQ(limited_by(), "host");
}

TEST(DoctorDocumentsTest, DecreasingCountsGiveNoRates) {
  const auto process = read_samples({document(1'000, 600, 100, Duration::from_s(10)),
                                     document(900, 500, 100, Duration::from_s(12))});
  EXPECT_FALSE(process->nics.at(0).flows.at(0).goodput_bps);
}

TEST(DoctorDocumentsTest, EvidenceIsReadBackFromAFile) {
  Evidence evidence;
  evidence.seen.push_back({document(1, 1, 0, Duration::from_s(1)), document(2, 2, 0, {})});
  evidence.seen.push_back({nullptr, document(2, 2, 0, Duration::from_s(2))});
  evidence.silent.push_back({"node2", 9, "it does not answer"});
  Evidence read;
  ASSERT_TRUE(add_evidence(to_json(evidence).dump(), read));
  EXPECT_EQ(to_json(read), to_json(evidence));
}

TEST(DoctorDocumentsTest, EveryMissingOrForeignMemberIsRefusedInOneSentence) {
  const Json whole = document(900, 500, 100, Duration::from_s(10));
  size_t refused = 0;
  const Json members = whole.flatten();
  for (const auto& [path, value] : members.items()) {
    for (const Json& instead : {Json(), Json("\x1b[31m"), Json(-1), Json(1e300), Json::array(),
                                Json::object(), Json(std::string(5000, 'x'))}) {
      Json changed = whole;
      changed[Json::json_pointer(path)] = instead;
      const auto process = read_samples({nullptr, changed});
      if (process) continue;  // the doctor does not read this member
      ++refused;
      EXPECT_EQ(process.error().code, ErrorCode::kPeer);
      EXPECT_THAT(process.error().message, HasSubstr("same version"));
    }
  }
  EXPECT_GT(refused, 100U);
}

TEST(DoctorDocumentsTest, DocumentsOfAnotherShapeAreRefused) {
  for (const char* text : {"", "null", "[]", "7", "{}", "{\"schema_version\":2}", "\"x\"",
                           "{\"schema_version\":1,\"processes\":{},\"silent\":[]}",
                           "{\"schema_version\":1,\"processes\":[7],\"silent\":[]}",
                           "{\"schema_version\":1,\"processes\":[{\"now\":1}],\"silent\":[]}",
                           "{\"schema_version\":1,\"processes\":[],\"silent\":[{\"pid\":1}]}"}) {
    Evidence evidence;
    EXPECT_FALSE(add_evidence(text, evidence)) << text;
    EXPECT_FALSE(read_samples({nullptr, Json::parse(text, nullptr, false)})) << text;
    EXPECT_TRUE(evidence.seen.empty() && evidence.silent.empty()) << text;
  }
}

// Documents with changed, missing and repeated bytes must not crash the doctor.
TEST(DoctorDocumentsTest, DamagedTextIsSurvived) {
  Prng random(20);
  const std::string whole =
      to_json({{{document(1'000, 600, 100, {}), document(900, 500, 100, {})}}, {}}).dump();
  size_t taken = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = whole;
    for (uint64_t changes = 1 + random.next_u64() % 4; changes > 0; --changes) {
      const size_t at = random.next_u64() % text.size();
      switch (random.next_u64() % 3) {
        case 0: text[at] = static_cast<char>(random.next_u64()); break;
        case 1: text.erase(at, random.next_u64() % 20); break;
        default: text.insert(at, text.substr(at / 2, random.next_u64() % 20));
      }
    }
    Evidence evidence;
    if (!add_evidence(text, evidence)) continue;
    for (const Samples& samples : evidence.seen) taken += read_samples(samples) ? 1 : 0;
  }
  EXPECT_GT(taken, 0U) << "some damage hits members that the doctor does not read";
}

TEST(DoctorDocumentsTest, DeepNestingIsSurvived) {
  Evidence evidence;
  EXPECT_FALSE(add_evidence(std::string(1'000'000, '['), evidence));
  const std::string deep = std::string(80'000, '[') + std::string(80'000, ']');
  EXPECT_FALSE(add_evidence(
      R"({"schema_version":1,"silent":[],"processes":[{"before":null,"now":)" + deep + "}]}",
      evidence));
}

}  // namespace
}  // namespace pacecar::test::documents_test
