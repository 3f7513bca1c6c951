// libfabric is loaded once per process, so its effects on a process are checked in child processes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/ofi/ofi_nic.h"
#include "transport/ofi/provider.h"

namespace pacecar::library_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Runs `work` in a process that has not loaded libfabric; returns the exit status.
template <typename Work>
int in_fresh_process(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(work());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool is_loaded() {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  std::array<char, 4096> line{};
  bool found = false;
  while (!found && std::fgets(line.data(), line.size(), maps) != nullptr) {
    found = std::strstr(line.data(), "libfabric") != nullptr;
  }
  std::fclose(maps);
  return found;
}

// A program of their own: libfabric stays loaded, so what loads it does that in a child.
class OfiLibraryTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(is_loaded()) << "by another test"; }
};

TEST_F(OfiLibraryTest, MissingFileIsUnavailableAndNamesTheCure) {
  const auto library = OfiLibrary::load("libfabric-nowhere.so");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(library.error().message,
              AllOf(HasSubstr("libfabric-nowhere.so"), HasSubstr("install it (libfabric1)")));
}

TEST_F(OfiLibraryTest, OtherLibraryIsRefusedWithTheVersionToInstall) {
  const auto library = OfiLibrary::load("libc.so.6");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(library.error().message, HasSubstr("install version 1.17 or later"));
}

TEST_F(OfiLibraryTest, LibraryIsFoundAfterAMissingFileAndStaysLoaded) {
  EXPECT_EQ(in_fresh_process([] {
              if (OfiLibrary::load("libfabric-nowhere.so")) return 1;
              const auto first = OfiLibrary::load();
              if (!first) return 2;
              return OfiLibrary::load("libfabric-nowhere.so").value() == *first ? 0 : 3;
            }),
            0);
}

// The handlers of all signals at its construction.
class SignalHandlers {
 public:
  SignalHandlers() {
    for (int i = 1; i < kSignals; ++i) sigaction(i, nullptr, &actions_[i]);
  }
  // The first signal whose handler has changed since then; 0: none.
  int first_other() const {
    const SignalHandlers now;
    for (int i = 1; i < kSignals; ++i) {
      if (!same(actions_[i], now.actions_[i])) return i;
    }
    return 0;
  }

 private:
  static constexpr int kSignals = 64;

  static bool same(const struct sigaction& a, const struct sigaction& b) {
    for (int signal = 1; signal < kSignals; ++signal) {
      if (sigismember(&a.sa_mask, signal) != sigismember(&b.sa_mask, signal)) return false;
    }
    constexpr int kRestorer = 0x04000000;  // set by the C library in each installed handler
    return a.sa_handler == b.sa_handler && ((a.sa_flags ^ b.sa_flags) & ~kRestorer) == 0;
  }

  std::array<struct sigaction, kSignals> actions_{};
};

void ignore(int /*signal*/) {}

// Some libraries that libfabric loads install handlers, but handlers of Python and NCCL must stay.
TEST_F(OfiLibraryTest, SignalHandlersSurviveTheLoadingOfLibfabric) {
  constexpr int kNotLoaded = 200;
  constexpr int kNoNic = 201;
  const int changed = in_fresh_process([] {
    struct sigaction own {};
    own.sa_handler = ignore;
    own.sa_flags = SA_RESTART;
    sigaddset(&own.sa_mask, SIGUSR2);
    for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &own, nullptr);
    const SignalHandlers before;
    if (!OfiLibrary::load()) return kNotLoaded;
    if (const int other = before.first_other(); other != 0) return other;
    if (!list_ofi_providers()) return kNotLoaded;
    if (const int other = before.first_other(); other != 0) return other;
    auto provider = choose_ofi_provider("tcp", "lo");
    if (!provider) return 0;
    if (!OfiNic::open({.name = "ofi:tcp:lo"}, std::move(*provider), Instant())) return kNoNic;
    return before.first_other();
  });
  if (changed == kNotLoaded) GTEST_SKIP() << "libfabric is missing";
  EXPECT_EQ(changed, 0) << "the number of the signal whose handler changed";
}

}  // namespace
}  // namespace pacecar::library_test
