// The main() of every test program. Property tests draw the same few cases each time: 25, or
// rapidcheck's 100 with TESTS_ALL=1; new cases where RC_PARAMS is set, be it to nothing. A case
// that ends the process, or does not end, is named as failing cases are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "net_plugin/host/communicator.h"
#include "tests/support/draws.h"
#include "tests/support/waiting.h"

namespace {

pid_t process = 0;
std::array<char, 512> last_words{};

void name_the_case(int number) {
  if (getpid() == process) {  // children that end like this are what a test wants
    size_t size = 0;
    while (size < last_words.size() && last_words[size] != 0) ++size;
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, last_words.data(), size);
  }
  raise(number);  // now as it would have been
}

class Running final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    std::snprintf(last_words.data(), last_words.size(),
                  "\n[  FAILED  ] %s.%s: the process ended, or this took too long\n",
                  test.test_suite_name(), test.name());
    const char* const slower = std::getenv("TESTS_SLOWER");  // how much a sanitizer slows it
    alarm(static_cast<unsigned>(pacecar::test::kCaseHangs.count() *
                                (slower == nullptr ? 1 : std::atoi(slower))));
  }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

void watch() {
  process = getpid();
  struct sigaction handler {};
  handler.sa_handler = name_the_case;
  handler.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGALRM, &handler, nullptr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which say more
  for (const int fatal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) {
    sigaction(fatal, &handler, nullptr);
  }
#endif
  testing::UnitTest::GetInstance()->listeners().Append(new Running);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  setenv("RC_PARAMS", pacecar::test::tests_all() ? "seed=20" : "seed=20 max_success=25", 0);
  pacecar::nccl::g_polls_for = pacecar::test::kWaitHangs;
  pacecar::nccl::g_between_polls = pacecar::test::pause_after;
  watch();
  return RUN_ALL_TESTS();
}
