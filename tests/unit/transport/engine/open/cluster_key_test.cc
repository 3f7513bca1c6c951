// The cluster key: the rules for its file, and the keys that are derived from it.
#include "transport/engine/open/cluster_key.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/support/scratch_directory.h"

namespace pacecar::cluster_key_test {
namespace {

using bootstrap::ClusterKey;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kText = "sixteen letters!";
static_assert(kMinClusterKey == 16);

class KeyFile : public testing::Test {
 protected:
  std::string file(const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_.path() / "key";
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }

  static void expect_key(const std::string& path, const std::string& text) {
    const auto key = read_cluster_key(path);
    ASSERT_TRUE(key) << key.error().message;
    EXPECT_EQ(std::string(key->bytes.begin(), key->bytes.end()), text);
  }

  static void expect_refused(const std::string& path, ErrorCode code, const std::string& why) {
    const auto key = read_cluster_key(path);
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().code, code) << key.error().message;
    EXPECT_THAT(key.error().message, AllOf(HasSubstr("the key file " + path), HasSubstr(why),
                                           HasSubstr("PACECAR_KEY_FILE"), Not(HasSubstr(kText))));
  }

  test::ScratchDirectory folder_;
};

TEST_F(KeyFile, EmptyNameMeansNoKey) {
  const auto key = read_cluster_key("");
  ASSERT_TRUE(key);
  EXPECT_FALSE(*key);
}

TEST_F(KeyFile, TrailingNewlinesAreStripped) {
  expect_key(file(kText), kText);
  expect_key(file(kText + "\n"), kText);
  expect_key(file(kText + "\n\n\n"), kText);
  expect_key(file("\n" + kText + " "), "\n" + kText + " ");
  const std::string binary = {'\0', '\xff', '\n', '\0', 'k', '\r', '\n', '\x80',
                              '\1', '\2',   '\3', '\4', '5', '6',  '7',  '\0'};
  expect_key(file(binary), binary);
}

TEST_F(KeyFile, KeyLengthIsBounded) {
  const std::string most(kMaxClusterKey, 'k');
  expect_key(file(most), most);
  expect_key(file(most + "\n"), most);
  for (const size_t size : {size_t{0}, size_t{1}, kMinClusterKey - 1}) {
    expect_refused(file(std::string(size, 'k')), ErrorCode::kInvalidArgument, "less than 16 bytes");
  }
  expect_refused(file(std::string(kMinClusterKey - 1, 'k') + "\n"), ErrorCode::kInvalidArgument,
                 "less than 16 bytes");
  expect_refused(file("\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"), ErrorCode::kInvalidArgument,
                 "less than 16 bytes");
  for (const size_t more : {size_t{1}, kMaxClusterKey, size_t{1} << 20}) {
    expect_refused(file(most + std::string(more, 'k')), ErrorCode::kInvalidArgument,
                   "more than 4096 bytes");
  }
}

TEST_F(KeyFile, FileOpenToOthersIsRefused) {
  for (const mode_t mode : {0400, 0500, 0600, 0700}) expect_key(file(kText, mode), kText);
  for (const mode_t bit : {0040, 0020, 0010, 0004, 0002, 0001}) {
    const std::string path = file(kText, 0600 | bit);
    expect_refused(path, ErrorCode::kPermission, "chmod 600 " + path);
  }
}

// Runs as `user` until it is destroyed; only root may.
class AsUser {
 public:
  explicit AsUser(uid_t user) { EXPECT_EQ(::seteuid(user), 0); }
  ~AsUser() { EXPECT_EQ(::seteuid(0), 0); }
};
constexpr uid_t kSomebody = 12345;

TEST_F(KeyFile, MissingFileIsRefused) {
  expect_refused(folder_.path() / "missing", ErrorCode::kNotFound, "No such file");
}

TEST_F(KeyFile, UnreadableFileIsRefused) {
  std::optional<AsUser> somebody;
  const std::string path = file(kText, 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  if (::geteuid() == 0) somebody.emplace(kSomebody);
  expect_refused(path, ErrorCode::kPermission, "Permission denied");
}

TEST_F(KeyFile, FileOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string path = file(kText);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chown(path.c_str(), kSomebody, 0), 0);
  expect_refused(path, ErrorCode::kPermission, "belongs to user 12345");
  const AsUser somebody(kSomebody);
  expect_key(path, kText);
}

TEST_F(KeyFile, SpecialFilesAreRefused) {
  const std::string fifo = folder_.path() / "fifo";  // nobody ever writes to it
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_refused(fifo, ErrorCode::kInvalidArgument, "is no regular file");
  const std::string folder = folder_.path() / "folder";
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  expect_refused(folder, ErrorCode::kInvalidArgument, "is no regular file");
  expect_refused("/dev/zero", ErrorCode::kInvalidArgument, "is no regular file");
}

TEST_F(KeyFile, SymbolicLinksAreFollowed) {
  const std::string path = file(kText);
  const std::string link = folder_.path() / "link";
  std::filesystem::create_symlink(path, link);
  expect_key(link, kText);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  expect_refused(link, ErrorCode::kPermission, "chmod 600");
}

template <size_t kSize>
std::string hex(const std::array<uint8_t, kSize>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

constexpr bootstrap::Secret kSecret{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

ClusterKey key_of(std::string_view text) { return {{text.begin(), text.end()}}; }

// Reference: RFC 5869's two steps with HMAC-SHA256 of Python's hmac module.
TEST(HandshakeKey, HandshakeKeyIsHkdfOfTheClusterKeyWithTheSecretAsSalt) {
  EXPECT_EQ(hex(bootstrap::handshake_key(kSecret, key_of(kText))),
            "c975b4b8eac404145e0a84bea442174eab0b15ebbc14b0b1f257709b369b84bf");
}

TEST(HandshakeKey, HandshakeKeyWithoutAClusterKeyIsTheSecret) {
  EXPECT_EQ(hex(bootstrap::handshake_key(kSecret, {})),
            "000102030405060708090a0b0c0d0e0f" + std::string(32, '0'));
  // HMAC-SHA256 with the 16 bytes of the secret, as in every release before cluster keys.
  const std::vector<uint8_t> content{'a', 'b', 'c'};
  EXPECT_EQ(hex(bootstrap::mac_of(bootstrap::handshake_key(kSecret, {}), content)),
            "d601cc177559b0248459787f7e804ed7f27689b5995c59b661802d9682fdf8d2");
}

TEST(HandshakeKey, DerivedKeyDependsOnEveryInput) {
  const ClusterKey key = key_of(kText);
  const auto own = bootstrap::derive_key(key, kSecret, "one");
  EXPECT_EQ(bootstrap::derive_key(key, kSecret, "one"), own);
  EXPECT_NE(bootstrap::derive_key(key, kSecret, "two"), own);
  bootstrap::Secret other = kSecret;
  other.back() ^= 1;
  EXPECT_NE(bootstrap::derive_key(key, other, "one"), own);
  EXPECT_NE(bootstrap::derive_key(key_of(kText + "\n"), kSecret, "one"), own);
}

}  // namespace
}  // namespace pacecar::cluster_key_test
