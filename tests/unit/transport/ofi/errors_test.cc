#include "transport/ofi/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <cerrno>
#include <string>
#include <vector>

namespace pacecar::errors_test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Row {
  int error;
  std::string_view name;
  CompletionStatus status;
  ErrorCode code;
};
constexpr auto kDead = CompletionStatus::kRetryExceeded;
constexpr auto kRefused = CompletionStatus::kRemoteAccessError;
constexpr auto kOurs = CompletionStatus::kLocalError;
const std::vector<Row> kRows{
    {FI_ECONNREFUSED, "FI_ECONNREFUSED", kDead, ErrorCode::kPeer},
    {FI_ECONNRESET, "FI_ECONNRESET", kDead, ErrorCode::kPeer},
    {FI_ECONNABORTED, "FI_ECONNABORTED", kDead, ErrorCode::kPeer},
    {FI_ENOTCONN, "FI_ENOTCONN", kDead, ErrorCode::kPeer},
    {FI_ESHUTDOWN, "FI_ESHUTDOWN", kDead, ErrorCode::kPeer},
    {FI_EHOSTUNREACH, "FI_EHOSTUNREACH", kDead, ErrorCode::kPeer},
    {FI_EHOSTDOWN, "FI_EHOSTDOWN", kDead, ErrorCode::kPeer},
    {FI_ENETUNREACH, "FI_ENETUNREACH", kDead, ErrorCode::kPeer},
    {FI_ETIMEDOUT, "FI_ETIMEDOUT", kDead, ErrorCode::kPeer},
    {FI_EIO, "FI_EIO", kDead, ErrorCode::kPeer},
    {EOWNERDEAD, "EOWNERDEAD", kDead, ErrorCode::kPeer},
    {FI_ECANCELED, "FI_ECANCELED", kOurs, ErrorCode::kSystem},
    {FI_EACCES, "FI_EACCES", kRefused, ErrorCode::kPermission},
    {FI_ENOENT, "FI_ENOENT", kRefused, ErrorCode::kPermission},
    {FI_EPERM, "FI_EPERM", kRefused, ErrorCode::kPermission},
    {FI_ENOKEY, "FI_ENOKEY", kRefused, ErrorCode::kSystem},
    {FI_ETRUNC, "FI_ETRUNC", kRefused, ErrorCode::kSystem},
    {FI_EMSGSIZE, "FI_EMSGSIZE", kOurs, ErrorCode::kSystem},
    {FI_ENOMEM, "FI_ENOMEM", kOurs, ErrorCode::kUnavailable},
    {FI_EMFILE, "FI_EMFILE", kOurs, ErrorCode::kUnavailable},
    {FI_ENOSPC, "FI_ENOSPC", kOurs, ErrorCode::kUnavailable},
    {FI_EADDRNOTAVAIL, "FI_EADDRNOTAVAIL", kOurs, ErrorCode::kNotFound},
    {FI_ENODEV, "FI_ENODEV", kOurs, ErrorCode::kSystem},
    {FI_ENODATA, "FI_ENODATA", kOurs, ErrorCode::kNotFound},
    {FI_ENOSYS, "FI_ENOSYS", kOurs, ErrorCode::kSystem},
    {FI_EOPNOTSUPP, "FI_EOPNOTSUPP", kOurs, ErrorCode::kSystem},
    {FI_EINVAL, "FI_EINVAL", kOurs, ErrorCode::kSystem},
};

OfiFailure failure(int error, int provider_error = 0) {
  return {.error = error,
          .provider_error = provider_error,
          .provider_text = provider_error != 0 ? "as the provider says" : "",
          .text = "as libfabric says"};
}

TEST(OfiErrors, EveryRowHasNameStatusCauseAndCure) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    const OfiErrorInfo& info = ofi_error_info(failure(row.error));
    EXPECT_EQ(info.error, row.error);
    EXPECT_EQ(info.name, row.name);
    EXPECT_EQ(info.status, row.status);
    EXPECT_EQ(info.code, row.code);
    EXPECT_FALSE(info.cause.empty());
    EXPECT_FALSE(info.cure.empty());
  }
}

TEST(OfiErrors, FaultsAndErrorsNameNicCauseAndCure) {
  for (const Row& row : kRows) {
    const OfiErrorInfo& info = ofi_error_info(failure(row.error));
    const std::string name(row.name);
    EXPECT_EQ(describe_fault({.nic = "ofi:tcp:eth0", .peer = "192.0.2.7:4711"}, failure(row.error)),
              "ofi:tcp:eth0, peer 192.0.2.7:4711: as libfabric says (" + name +
                  "), likely because " + std::string(info.cause) + ". To cure it, " +
                  std::string(info.cure) + ".");
    const Error error = ofi_error("fi_endpoint", failure(row.error), "ofi:tcp");
    EXPECT_THAT(error.message,
                StartsWith("ofi:tcp: fi_endpoint failed: as libfabric says (" + name + "), "));
    EXPECT_THAT(error.message, Not(HasSubstr("peer"))) << "the call has none";
    if (info.status != CompletionStatus::kLocalError) continue;
    EXPECT_EQ(error.code, row.code);
    EXPECT_THAT(error.message, EndsWith(std::string(info.cause) + ": " + std::string(info.cure)));
  }
}

TEST(OfiErrors, FaultOfAnUnconnectedEndNamesNoPeer) {
  EXPECT_THAT(describe_fault({.nic = "ofi:tcp:eth0", .peer = ""}, failure(FI_EIO)),
              StartsWith("ofi:tcp:eth0: as libfabric says (FI_EIO), likely"));
}

TEST(OfiErrors, FaultHasTheTextOfTheProvider) {
  EXPECT_THAT(describe_fault({.nic = "n", .peer = "p"}, failure(FI_EIO, 12)),
              HasSubstr("(FI_EIO; provider error 12: as the provider says), likely"));
  OfiFailure twice = failure(FI_EIO, 5);
  twice.provider_text = twice.text;
  EXPECT_THAT(describe_fault({.nic = "n", .peer = "p"}, twice),
              HasSubstr("as libfabric says (FI_EIO; provider error 5), likely"));
}

// When the peer dies, tcp cancels the writes in flight: FI_ECANCELED, with the provider error
// ENOTCONN.
TEST(OfiErrors, CanceledWriteHasTheStatusOfItsProviderError) {
  const OfiFailure died = failure(FI_ECANCELED, FI_ENOTCONN);
  EXPECT_EQ(ofi_error_info(died).name, "FI_ENOTCONN");
  EXPECT_EQ(ofi_error_info(died).status, CompletionStatus::kRetryExceeded);
  EXPECT_THAT(describe_fault({.nic = "n", .peer = "p"}, died),
              AllOf(HasSubstr("(FI_ECANCELED; provider error 107: "),
                    HasSubstr("the peer's process has ended")));
  EXPECT_EQ(ofi_error_info(failure(FI_ECANCELED, 4711)).name, "FI_ECANCELED");
  EXPECT_EQ(ofi_error_info(failure(FI_EINVAL, FI_ENOTCONN)).name, "FI_EINVAL");
}

TEST(OfiErrors, UnknownErrorNumbersHaveACure) {
  const OfiErrorInfo& info = ofi_error_info(failure(4711));
  EXPECT_EQ(info.status, CompletionStatus::kLocalError);
  EXPECT_EQ(info.code, ErrorCode::kSystem);
  EXPECT_THAT(describe_fault({.nic = "n", .peer = "p"}, failure(4711)),
              AllOf(HasSubstr("as libfabric says (error 4711), likely because "),
                    HasSubstr("FI_LOG_LEVEL=warn")));
}

}  // namespace
}  // namespace pacecar::errors_test
