#include "transport/verbs/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace pacecar::errors_test {
namespace {

using testing::HasSubstr;

std::string document() {
  std::ifstream file(PACECAR_VERBS_ERRORS);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string row(std::initializer_list<std::string_view> cells) {
  std::string text = "|";
  for (const std::string_view cell : cells) text += " " + std::string(cell) + " |";
  return text + "\n";
}

std::string_view call_name(Call call) {
  if (call == Call::kRegister) return "register memory";
  return call == Call::kConnect ? "connect" : "anything";
}

// All but the statuses of memory windows, reliable datagrams and tag matching, which we do not use.
TEST(VerbsErrors, EveryStatusOfOurOperationsHasOneRow) {
  const std::set<int> unused{IBV_WC_LOC_EEC_OP_ERR,   IBV_WC_MW_BIND_ERR,
                             IBV_WC_LOC_RDD_VIOL_ERR, IBV_WC_REM_INV_RD_REQ_ERR,
                             IBV_WC_INV_EECN_ERR,     IBV_WC_INV_EEC_STATE_ERR,
                             IBV_WC_TM_ERR,           IBV_WC_TM_RNDV_INCOMPLETE};
  std::set<int> seen;
  for (const StatusInfo& info : status_table()) EXPECT_TRUE(seen.insert(info.status).second);
  for (int status = IBV_WC_SUCCESS + 1; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    EXPECT_NE(seen.contains(status), unused.contains(status)) << status;
  }
}

TEST(VerbsErrors, DocumentHasEveryRowOfTheTables) {
  const std::string text = document();
  for (const StatusInfo& info : status_table()) {
    EXPECT_THAT(text, HasSubstr(row({info.name, info.what, info.cause, info.cure})));
  }
  for (const ErrnoInfo& info : errno_table()) {
    EXPECT_THAT(text, HasSubstr(row({info.name, call_name(info.call), info.text})));
  }
}

TEST(VerbsErrors, DocumentHasNoOtherRows) {
  const std::string text = document();
  size_t rows = 0;
  for (size_t at = text.find("\n| "); at != std::string::npos; at = text.find("\n| ", at + 1)) {
    ++rows;
  }
  EXPECT_EQ(rows, status_table().size() + errno_table().size() + 2) << "the rows and two headings";
}

TEST(VerbsErrors, SilenceAndRefusalsHaveDifferentStatuses) {
  EXPECT_EQ(status_info(IBV_WC_RETRY_EXC_ERR).completion, CompletionStatus::kRetryExceeded);
  EXPECT_EQ(status_info(IBV_WC_RNR_RETRY_EXC_ERR).completion, CompletionStatus::kReceiverNotReady);
  EXPECT_EQ(status_info(IBV_WC_REM_ACCESS_ERR).completion, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(status_info(IBV_WC_REM_INV_REQ_ERR).completion, CompletionStatus::kRemoteRefused);
  EXPECT_TRUE(status_info(IBV_WC_REM_ACCESS_ERR).request_at_fault);
  EXPECT_FALSE(status_info(IBV_WC_RETRY_EXC_ERR).request_at_fault);
  EXPECT_FALSE(status_info(IBV_WC_WR_FLUSH_ERR).request_at_fault) << "an earlier one has failed";
}

TEST(VerbsErrors, StatusOfALaterVersionIsALocalError) {
  const StatusInfo& info = status_info(static_cast<ibv_wc_status>(31));
  EXPECT_EQ(info.completion, CompletionStatus::kLocalError);
}

TEST(VerbsErrors, AFaultNamesDevicePortPeerStatusAndCure) {
  const std::string fault = describe_fault(
      {.device = "mlx5_3", .port = 2, .peer = "::ffff:1.2.3.4"}, IBV_WC_RETRY_EXC_ERR, 0x81);
  for (const char* part : {"mlx5_3", "port 2", "::ffff:1.2.3.4", "RETRY_EXC_ERR", "0x81",
                           "has not answered", "PACECAR_GID_INDEX", "MTU", "PFC"}) {
    EXPECT_THAT(fault, HasSubstr(part));
  }
}

TEST(VerbsErrors, CureOfAnErrnoDependsOnTheCall) {
  const Error not_pinned = verbs_error(Call::kRegister, "ibv_reg_mr", ENOMEM, "mlx5_0");
  EXPECT_EQ(not_pinned.code, ErrorCode::kPermission);
  EXPECT_THAT(not_pinned.message, HasSubstr("ulimit -l unlimited"));
  EXPECT_THAT(not_pinned.message, HasSubstr("mlx5_0: ibv_reg_mr failed"));
  EXPECT_EQ(verbs_error(Call::kOther, "ibv_create_qp", ENOMEM, "mlx5_0").code,
            ErrorCode::kUnavailable);
  EXPECT_EQ(verbs_error(Call::kConnect, "ibv_modify_qp", ETIMEDOUT, "mlx5_0").code,
            ErrorCode::kPeer);
  EXPECT_EQ(verbs_error(Call::kConnect, "ibv_modify_qp", ENODEV, "mlx5_0").code,
            ErrorCode::kSystem);
}

TEST(VerbsErrors, UnknownErrnoGivesASentence) {
  const Error error = verbs_error(Call::kOther, "ibv_open_device", EXDEV, "mlx5_0");
  EXPECT_EQ(error.code, ErrorCode::kSystem);
  EXPECT_THAT(error.message, HasSubstr("dmesg"));
}

}  // namespace
}  // namespace pacecar::errors_test
