#include "transport/base/start_thread.h"

#include <gmock/gmock.h>

#include <thread>

namespace pacecar::start_thread_test {
namespace {

struct RefusedThread {
  template <typename Work>
  explicit RefusedThread(const Work&) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }
};

TEST(StartThread, ARefusalNamesTheThreadAndTheCure) {
  try {
    start_thread<RefusedThread>("counts", [] {});
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_STREQ(error.what(),
                 "no thread can be made that counts: raise the limits of processes (ulimit -u, and "
                 "pids.max of the container): Resource temporarily unavailable");
  }
}

TEST(StartThread, TheThreadRuns) {
  bool ran = false;
  start_thread<std::jthread>("counts", [&] { ran = true; }).join();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace pacecar::start_thread_test
