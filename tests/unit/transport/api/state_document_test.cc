// The pages that a Context serves at the process's state socket.
#include "transport/api/state_document.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/support/read_state.h"
#include "tests/support/scratch_directory.h"
#include "transport/api/pacecar.hpp"
#include "transport/state/state_directory.h"

namespace pacecar::test::state_document_test {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ContextStateTest : public testing::Test {
 protected:
  std::unique_ptr<Context> open(const std::string& state_dir) {
    const auto keep = [](void* lines, LogLevel, std::string_view line) {
      static_cast<std::vector<std::string>*>(lines)->emplace_back(line);
    };
    auto context = Context::open({.settings = {{"PACECAR_NICS", "soft:udp:lo"},
                                               {"PACECAR_STATE_DIR", state_dir},
                                               {"PACECAR_LOG", "info"}},
                                  .defaults = {},
                                  .log = {keep, &lines_}});
    EXPECT_TRUE(context) << context.error().message;
    return std::move(*context);
  }
  std::string page(std::string_view name) const {
    const auto directory = StateDirectory::find(path_).value();
    return read_state(directory, directory.sockets().at(0), Duration::from_s(60), name).value();
  }
  Json document() const { return Json::parse(page(kWholeState)); }

  const ScratchDirectory scratch_;
  const std::string path_ = scratch_.path() / "pacecar";
  std::vector<std::string> lines_;
};

template <typename Poll>
auto poll_until_there(Poll poll) {
  for (;;) {
    auto result = poll();
    if (!result || *result != nullptr) return std::move(result.value());
  }
}

TEST_F(ContextStateTest, DocumentHasProcessNicsAndFlows) {
  setenv("RANK", "3", 1);
  const auto context = open(path_);
  unsetenv("RANK");
  const auto listener = context->listen(0).value();
  const auto connecting = context->connect(0, listener->handle()).value();
  std::unique_ptr<ReceiveConnection> receiving;
  const auto sending = poll_until_there([&] {
    if (receiving == nullptr) receiving = listener->accept().value();
    return connecting->poll();
  });
  if (receiving == nullptr) receiving = poll_until_there([&] { return listener->accept(); });

  const Json state = document();
  EXPECT_EQ(state["schema_version"], 1);
  EXPECT_EQ(state["pid"], getpid());
  EXPECT_EQ(state["rank"], 3);
  EXPECT_EQ(state["banner"], context->banner());
  EXPECT_GT(state["uptime_ns"], 0);
  ASSERT_EQ(state["nics"].size(), 1U);
  const Json& nic = state["nics"][0];
  EXPECT_EQ(nic["name"], "soft:udp:lo");
  EXPECT_EQ(nic["statistics"]["messages_sent"], 0);
  ASSERT_EQ(nic["flows"].size(), 2U);
  for (const Json& flow : nic["flows"]) {
    EXPECT_EQ(flow["peer_identity"], nic["identity"]) << "the peer is this NIC";
    EXPECT_EQ(flow["state"], "open");
    EXPECT_EQ(flow["connections"], 1);
    EXPECT_THAT(flow["peer"].get<std::string>(), HasSubstr("127.0.0.1:"));
    EXPECT_EQ(flow.contains("limited_by"), flow["direction"] == "send");
  }
  EXPECT_NE(nic["flows"][0]["direction"], nic["flows"][1]["direction"]);
  EXPECT_EQ(nic["flows"][0]["number"], nic["flows"][1]["number"]);

  Json summary = Json::parse(page(kStateSummary));
  EXPECT_EQ(summary["nics"][0]["statistics"]["flows_sending"], 1);
  EXPECT_EQ(summary["nics"][0]["statistics"]["connections_receiving"], 1);
  EXPECT_FALSE(summary["nics"][0].contains("flows"))
      << "the size of the summary must not depend on the job's size";
}

TEST_F(ContextStateTest, SocketIsRemovedWithTheContext) {
  open(path_).reset();
  EXPECT_THAT(StateDirectory::find(path_)->sockets(), IsEmpty());
}

TEST_F(ContextStateTest, DirectoryNoneServesNothing) {
  const auto context = open("none");
  EXPECT_FALSE(std::filesystem::exists("none"));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ContextStateTest, MissingDirectoryDisablesOnlyTheState) {
  const auto context = open(scratch_.path() / "no" / "such" / "place");
  EXPECT_TRUE(context->listen(0));
  EXPECT_THAT(
      lines_,
      ElementsAre(HasSubstr("pacecar doctor, top and metrics will not see this process: ")));
}

TEST(StateDocumentTest, TextsAreMadePrintable) {
  ProcessState state;
  state.name = {.host = "h\xff\x1b[2J", .program = "p\n\"q\"", .pid = 1, .rank = std::nullopt};
  const Json document = Json::parse(state_document(state));
  EXPECT_EQ(document["host"], "h??[2J");
  EXPECT_EQ(document["program"], "p?\"q\"");
  EXPECT_FALSE(document.contains("rank"));
}

TEST(StateDocumentTest, RankIsTheLaunchersNumber) {
  for (const char* variable : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"}) {
    setenv(variable, "12", 1);
    EXPECT_EQ(own_process().rank, 12U) << variable;
    setenv(variable, "12b", 1);
    EXPECT_EQ(own_process().rank, std::nullopt) << variable;
    unsetenv(variable);
  }
}

}  // namespace
}  // namespace pacecar::test::state_document_test
