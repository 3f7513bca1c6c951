// OverOfi: tests over each of libfabric's providers that are available on every machine, in real
// time. A missing provider is skipped.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/draws.h"
#include "tests/support/ofi_end.h"

namespace pacecar::test {

class OverOfi : public testing::TestWithParam<OfiKind> {
 protected:
  static constexpr size_t kSize = 256 << 10;  // of a write, bytes

  void SetUp() override {
    const auto there = choose_ofi_provider(kind().provider, kind().domain);
    if (!there) GTEST_SKIP() << there.error().message;
  }
  static const OfiKind& kind() { return GetParam(); }
};

// In a usual run not over rxd, which is slow.
inline auto every_ofi_kind() {
  std::vector<OfiKind> kinds{kOfiTcp};
  if (tests_all()) kinds.push_back(kOfiRxd);
  return testing::ValuesIn(kinds);
}
inline std::string ofi_kind_name(const testing::TestParamInfo<OfiKind>& each) {
  return each.param.name;
}

}  // namespace pacecar::test
