// The state socket: permissions, stale sockets, hostile callers.
#include "transport/state/state_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/read_state.h"
#include "tests/support/scratch_directory.h"

namespace pacecar::test::state_server_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Duration kLimit = Duration::from_s(60);

mode_t mode_of(const std::filesystem::path& path) {
  struct stat information {};
  EXPECT_EQ(lstat(path.c_str(), &information), 0);
  return information.st_mode & 07777;
}

void make_old(const std::filesystem::path& path) {
  const timespec times[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

// A bound socket that listens if `listening`; nobody accepts.
FileDescriptor bind_to(const std::filesystem::path& path, bool listening) {
  FileDescriptor bound(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(bind(bound.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(!listening || listen(bound.get(), 0) == 0);
  return bound;
}

FileDescriptor connect_to(const std::filesystem::path& path) {
  FileDescriptor caller(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(connect(caller.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return caller;
}

StatePages pages_of(const std::string& document) {
  return {{kWholeState, kJsonType, [document] { return document; }},
          {"/metrics", "text/plain", [] { return "metrics 1\n"; }}};
}

// Sends `words`, closes the sending side if `ends`, and returns the whole answer.
std::string request(const std::filesystem::path& path, std::string_view words, bool ends = false) {
  const FileDescriptor caller = connect_to(path);
  // The server may have answered the first of many words already, and have closed.
  EXPECT_GT(send(caller.get(), words.data(), words.size(), MSG_NOSIGNAL), words.empty() ? -1 : 0);
  if (ends) shutdown(caller.get(), SHUT_WR);
  std::string answer;
  std::array<char, 4096> part;
  for (ssize_t size = 0; (size = recv(caller.get(), part.data(), part.size(), 0)) > 0;) {
    answer.append(part.data(), static_cast<size_t>(size));
  }
  return answer;
}

class StateServerTest : public testing::Test {
 protected:
  std::unique_ptr<StateServer> serve(const std::string& document) {
    auto server = StateServer::open(StateDirectory::make(path_).value(), pages_of(document));
    EXPECT_TRUE(server) << server.error().message;
    return server ? std::move(*server) : nullptr;
  }
  StateDirectory directory() const { return StateDirectory::find(path_).value(); }
  std::filesystem::path file(const std::string& name) const {
    return std::filesystem::path(path_) / name;
  }

  const ScratchDirectory scratch_;
  const std::string path_ = scratch_.path() / "pacecar";
};

TEST_F(StateServerTest, OwnerReadsTheWholeDocument) {
  const std::string document(3'000'000, 'x');
  const auto server = serve(document);
  const auto names = directory().sockets();
  ASSERT_THAT(names, ElementsAre(std::to_string(getpid()) + "-0.sock"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(read_state(directory(), names[0], kLimit).value(), document);
  }
}

TEST_F(StateServerTest, OnlyTheOwnerMayUseTheSocket) {
  const auto server = serve("{}");
  EXPECT_EQ(mode_of(path_), 0700U);
  EXPECT_EQ(mode_of(file(directory().sockets().at(0))), 0600U);
}

TEST_F(StateServerTest, ServersOfAProcessHaveTheirOwnSocketsAndRemoveThem) {
  auto first = serve("1");
  const auto second = serve("2");
  ASSERT_EQ(directory().sockets().size(), 2U);
  EXPECT_EQ(read_state(directory(), directory().sockets()[1], kLimit).value(), "2");
  first.reset();
  ASSERT_EQ(directory().sockets().size(), 1U);
  EXPECT_EQ(read_state(directory(), directory().sockets()[0], kLimit).value(), "2");
}

TEST_F(StateServerTest, DescriptorsAreClosedOnExec) {
  const auto server = serve("{}");
  size_t of_the_server = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry, gone).string();
    const bool its = target == path_ || target.starts_with("socket:") ||
                     target.find("eventfd") != std::string::npos;
    if (gone || !its) continue;
    ++of_the_server;
    EXPECT_TRUE(fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC) << target;
  }
  EXPECT_GE(of_the_server, 3U);
}

TEST_F(StateServerTest, DirectoriesThatOthersCanEnterAreRefused) {
  std::filesystem::create_directory(path_);
  chmod(path_.c_str(), 0755);
  const auto open_to_others = StateDirectory::make(path_);
  ASSERT_FALSE(open_to_others);
  EXPECT_EQ(open_to_others.error().code, ErrorCode::kPermission);
  EXPECT_THAT(open_to_others.error().message, HasSubstr("chmod 700"));
}

TEST_F(StateServerTest, LinksAndFilesAreRefusedAsDirectories) {
  std::filesystem::create_directory(scratch_.path() / "elsewhere");
  chmod((scratch_.path() / "elsewhere").c_str(), 0700);
  std::filesystem::create_symlink(scratch_.path() / "elsewhere", path_);
  EXPECT_FALSE(StateDirectory::make(path_));
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path() / "elsewhere"));
  std::filesystem::remove(path_);
  std::ofstream(path_) << "file";
  EXPECT_FALSE(StateDirectory::make(path_));
}

TEST_F(StateServerTest, AnotherUsersDirectoryIsRefusedEvenByRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make one";
  std::filesystem::create_directory(path_);
  chmod(path_.c_str(), 0700);
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(StateDirectory::make(path_));
  EXPECT_TRUE(StateDirectory::find(path_)) << "root may look into it";
  // The process that listens there does not belong to the owner.
  const FileDescriptor impostor = bind_to(file("1-0.sock"), true);
  const auto read = read_state(directory(), "1-0.sock", kLimit);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kPermission);
}

// Without a runtime directory: a name in a folder that others can write, too.
TEST_F(StateServerTest, UsualDirectoryMustBeOursAlone) {
  setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
  const std::string usual = scratch_.path() / fmt::format("pacecar-{}", geteuid());
  std::filesystem::create_directory(usual);
  chmod(usual.c_str(), 0755);
  const auto refused = StateDirectory::make_usual(scratch_.path());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
  EXPECT_THAT(refused.error().message, HasSubstr(usual + " is another user's"));
  chmod(usual.c_str(), 0700);
  const auto used = StateDirectory::make_usual(scratch_.path());
  ASSERT_TRUE(used) << used.error().message;
  EXPECT_EQ(used->path(), usual);
  EXPECT_THAT(usual_state_directories(scratch_.path()), testing::Contains(usual));
  unsetenv("XDG_RUNTIME_DIR");
}

TEST_F(StateServerTest, RuntimeDirectoryIsUsedIfItIsOurs) {
  setenv("XDG_RUNTIME_DIR", scratch_.path().c_str(), 1);
  const auto used = StateDirectory::make_usual(scratch_.path());
  ASSERT_TRUE(used) << used.error().message;
  EXPECT_EQ(used->path(), scratch_.path() / "pacecar");
  EXPECT_THAT(usual_state_directories(scratch_.path()), testing::Contains(used->path()));
  unsetenv("XDG_RUNTIME_DIR");
}

TEST_F(StateServerTest, OnlyStaleSocketsAreRemoved) {
  const auto server = serve("{}");
  const std::string served = directory().sockets().at(0);
  make_old(file(served));
  bind_to(file("1-0.sock"), false);
  make_old(file("1-0.sock"));
  bind_to(file("2-0.sock"), false);  // just bound: may be about to listen
  std::ofstream(file("3-0.sock")) << "no socket";
  make_old(file("3-0.sock"));
  const FileDescriptor busy = bind_to(file("4-0.sock"), true);  // its backlog takes one caller
  const FileDescriptor first = connect_to(file("4-0.sock"));
  make_old(file("4-0.sock"));
  directory().remove_stale();
  EXPECT_THAT(directory().sockets(),
              testing::UnorderedElementsAre(served, "2-0.sock", "3-0.sock", "4-0.sock"));
  EXPECT_EQ(read_state(directory(), "2-0.sock", kLimit).error().code, ErrorCode::kNotFound);
}

TEST_F(StateServerTest, NextServerRemovesStaleSockets) {
  serve("{}").reset();
  bind_to(file("1-0.sock"), false);
  make_old(file("1-0.sock"));
  const auto server = serve("{}");
  EXPECT_THAT(directory().sockets(), ElementsAre(std::to_string(getpid()) + "-0.sock"));
}

TEST_F(StateServerTest, ReaderGivesUpIfTheServerDoesNotAccept) {
  serve("{}").reset();
  const FileDescriptor silent = bind_to(file("7-0.sock"), true);
  const FileDescriptor first = connect_to(file("7-0.sock"));  // fills the backlog
  for (int i = 0; i < 2; ++i) {
    const auto read = read_state(directory(), "7-0.sock", Duration::from_ms(50));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, ErrorCode::kPeer);
  }
}

TEST_F(StateServerTest, IdleCallersDoNotBlockOthers) {
  const auto server = serve(std::string(8'000'000, 'x'));
  const std::string name = directory().sockets().at(0);
  const FileDescriptor idle = connect_to(file(name));
  connect_to(file(name));  // gone at once
  EXPECT_EQ(read_state(directory(), name, kLimit).value().size(), 8'000'000U);
}

TEST_F(StateServerTest, ServerEndsWhileACallerIsIdle) {
  auto server = serve(std::string(8'000'000, 'x'));
  const FileDescriptor idle = connect_to(file(directory().sockets().at(0)));
  char byte = 0;
  ASSERT_EQ(recv(idle.get(), &byte, 1, 0), 1);  // the answer has begun
  server.reset();
  EXPECT_THAT(directory().sockets(), IsEmpty());
}

TEST_F(StateServerTest, NamedPageIsServed) {
  const auto server = serve("{}");
  const auto path = file(directory().sockets().at(0));
  EXPECT_EQ(request(path, "GET /metrics\n"), "metrics 1\n");
  EXPECT_EQ(request(path, "GET /state\n"), "{}");
  EXPECT_EQ(request(path, "", true), "{}") << "an ended request without a page";
  EXPECT_EQ(request(path, ""), "{}") << "no request";
  EXPECT_EQ(request(path, "GET /metrics HTTP/1.1\r\nHost: pacecar\r\n\r\n"),
            "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n"
            "Connection: close\r\n\r\nmetrics 1\n");
}

TEST_F(StateServerTest, UnknownRequestGetsTheListOfPages) {
  const auto server = serve("{}");
  const auto path = file(directory().sockets().at(0));
  const std::string sentence = "There is no such page: send GET and one of /state /metrics.\n";
  for (const std::string& words :
       {std::string("GET /\n"), std::string("GET \n"), std::string("POST /state HTTP/1.1\r\n"),
        std::string("\n"), std::string(4096, 'x'), std::string("GET /state SMTP\n"),
        std::string("\0GET /state\n", 12), std::string(100'000, '\n')}) {
    EXPECT_EQ(request(path, words), sentence) << words.substr(0, 40);
  }
  EXPECT_EQ(request(path, "GET", true), sentence);
  EXPECT_THAT(request(path, "GET /nope HTTP/1.1\r\n\r\n"),
              testing::StartsWith("HTTP/1.0 404 Not Found\r\n"));
}

TEST_F(StateServerTest, ReaderGivesUpIfTheServerIsSilent) {
  const auto server = serve("{}");
  const FileDescriptor silent = bind_to(file("7-0.sock"), true);
  const auto read = read_state(directory(), "7-0.sock", Duration::from_ms(500));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kPeer);
}

// The silent server, which comes first, closes when the second one answers. A reader that asked one
// after the other would give up the first at the limit, with another error.
TEST_F(StateServerTest, ServersAreAskedAtTheSameTime) {
  FileDescriptor silent;  // outlives the server
  const StatePage page{kWholeState, kJsonType, [&silent] {
                         silent = FileDescriptor();
                         return std::string("{}");
                       }};
  const auto server = StateServer::open(StateDirectory::make(path_).value(), {page}).value();
  silent = bind_to(file("7-0.sock"), true);
  const StateDirectory all = directory();
  const std::string served = std::to_string(getpid()) + "-0.sock";
  const std::vector<StatePlace> places = {{&all, "7-0.sock"}, {&all, served}, {&all, "8-0.sock"}};
  const auto answers = ask_all(places, {.page = kWholeState, .limit = kLimit});
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[0].error().code, ErrorCode::kNotFound) << answers[0].error().message;
  EXPECT_EQ(answers[1].value(), "{}") << "the silent server takes none of its time";
  EXPECT_EQ(answers[2].error().code, ErrorCode::kNotFound);
}

TEST_F(StateServerTest, TooLongAnswerIsGivenUp) {
  const auto server = serve("12");
  const StateDirectory all = directory();
  const StatePlace place{&all, all.sockets().at(0)};
  const auto answer =
      ask_all({&place, 1}, {.page = kWholeState, .limit = kLimit, .max_bytes = 1}).at(0);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("no end"));
}

TEST(StateDirectoryTest, SocketNameGivesThePid) {
  EXPECT_EQ(pid_of_socket("123-0.sock"), 123);
  for (const char* name : {"", ".sock", "-.sock", "1-.sock", "-1-0.sock", "0-0.sock", "1-0.socket",
                           "1-0x.sock", "x-0.sock", "99999999999999-0.sock", "1.sock"}) {
    EXPECT_FALSE(pid_of_socket(name)) << name;
  }
}

}  // namespace
}  // namespace pacecar::test::state_server_test
