// Clients that prove the cluster's key to a ControlListener, and clients that cannot.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/cli/json_fields.h"
#include "bench/perf/control_listener.h"

namespace pacecar::perf::control_proof_test {
namespace {

using bootstrap::ClusterKey;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::json;

constexpr Duration kPatience = Duration::from_s(30);
constexpr const char* kHere = "127.0.0.1";
constexpr const char* kFriend = "127.0.0.2";  // source address of the last client
const std::string kCure = "let PACECAR_KEY_FILE name the same key on both hosts or on neither";

ClusterKey key_of(uint8_t byte) { return {std::vector<uint8_t>(32, byte)}; }

// A listener and its clients, which connect one after the other from a thread of their own.
class ControlProofTest : public ::testing::Test {
 protected:
  void listen(ClusterKey key) {
    key_ = std::move(key);
    auto listener = ControlListener::open({kHere}, 0, key_);
    ASSERT_TRUE(listener);
    listener_.emplace(std::move(*listener));
  }

  ControlChannel connect(const std::string& source = {}) {
    auto channel = ControlChannel::connect(kHere, listener_->port(), kPatience, source);
    if (!channel) throw std::runtime_error(channel.error().message);
    return std::move(*channel);
  }

  // Serves `strangers`, then a client that has the key; returns the server's warnings about
  // strangers.
  template <typename Strangers>
  std::vector<std::string> warnings_of(Strangers strangers) {
    std::vector<std::string> warnings;
    std::atomic<bool> over = false;
    bool welcomed = false;
    std::thread others([&] {
      strangers();
      // On a slow host the listener may disconnect this client: then it comes again.
      while (!welcomed && !over) {
        ControlChannel last = connect(kFriend);
        welcomed = prove(last, key_, kPatience) && last.send({{"type", "hello"}, {"last", true}}) &&
                   last.expect("welcome", kPatience);
      }
    });
    auto caller = listener_->accept("hello", [&](const Error& why) {
      if (why.message.find(kFriend) == std::string::npos) warnings.push_back(why.message);
    });
    over = true;
    if (caller) static_cast<void>(caller->channel.send({{"type", "welcome"}}));
    others.join();
    EXPECT_TRUE(welcomed) << "a client that has the key was not welcomed";
    EXPECT_TRUE(caller);
    EXPECT_EQ(caller->greeting.value("last", false), true) << "a stranger was let in";
    return warnings;
  }

  ClusterKey key_;
  std::optional<ControlListener> listener_;
};

TEST_F(ControlProofTest, ClientWithTheKeyIsWelcome) {
  for (const ClusterKey& key : {key_of(1), ClusterKey()}) {
    listen(key);
    EXPECT_THAT(warnings_of([] {}), SizeIs(0));
  }
}

TEST_F(ControlProofTest, ClientWithoutAKeyIsRefusedWithAMessageAtBothEnds) {
  listen(key_of(1));
  const auto says = AllOf(HasSubstr("the client 127.0.0.1:"),
                          HasSubstr("does not show the cluster key"), HasSubstr(kCure));
  EXPECT_THAT(warnings_of([&] {
                ControlChannel client = connect();
                EXPECT_TRUE(client.send({{"type", "hello"}}));
                const auto welcome = client.expect("welcome", kPatience);
                ASSERT_FALSE(welcome);
                EXPECT_THAT(welcome.error().message, says);
              }),
              ElementsAre(says));
}

TEST_F(ControlProofTest, ClientWithAnotherKeyIsRefusedWithAMessageAtBothEnds) {
  listen(key_of(1));
  const auto says = AllOf(HasSubstr("the client 127.0.0.1:"),
                          HasSubstr("has another cluster key than the server"), HasSubstr(kCure));
  EXPECT_THAT(warnings_of([&] {
                ControlChannel client = connect();
                const auto proved = prove(client, key_of(2), kPatience);
                ASSERT_FALSE(proved);
                EXPECT_THAT(proved.error().message, says);
              }),
              ElementsAre(says));
}

TEST_F(ControlProofTest, KeylessServerRefusesAClientWithAKeyWithAMessageAtBothEnds) {
  listen({});
  const auto says = AllOf(HasSubstr("the client 127.0.0.1:"), HasSubstr("and the server has none"),
                          HasSubstr(kCure));
  EXPECT_THAT(warnings_of([&] {
                ControlChannel client = connect();
                const auto proved = prove(client, key_of(1), kPatience);
                ASSERT_FALSE(proved);
                EXPECT_THAT(proved.error().message, says);
              }),
              ElementsAre(says));
}

// Strangers that send something else in place of a proof.
TEST_F(ControlProofTest, InvalidProofsAreRefused) {
  listen(key_of(1));
  const std::string nonce(2 * sizeof(bootstrap::Nonce), '0');
  const std::string mac(2 * sizeof(bootstrap::Mac), '0');
  const Json prove{{"type", "prove"}, {"nonce", nonce}};
  const Json hello{{"type", "hello"}};
  const std::vector<std::vector<Json>> strangers = {
      {{{"type", "prove"}}},
      {{{"type", "prove"}, {"nonce", 7}}},
      {{{"type", "prove"}, {"nonce", nonce + "0"}}},
      {{{"type", "prove"}, {"nonce", std::string(nonce.size(), 'g')}}},
      {{{"type", "proof"}, {"mac", mac}}, hello},
      {prove, hello},
      {prove, prove, hello},
      {prove, {{"type", "proof"}}, hello},
      {prove, {{"type", "proof"}, {"mac", ""}}, hello},
      {prove, {{"type", "proof"}, {"mac", mac.substr(1)}}, hello},
      {prove, {{"type", "proof"}, {"mac", mac + "00"}}, hello},
      {prove, {{"type", "proof"}, {"mac", mac}}, hello},
      {prove, {{"type", "proof"}, {"mac", Json::array()}}, hello},
  };
  EXPECT_THAT(warnings_of([&] {
                for (const auto& words : strangers) {
                  ControlChannel stranger = connect();
                  for (const Json& word : words) static_cast<void>(stranger.send(word));
                  const auto left = [&] { return !stranger.receive(kPatience); };
                  EXPECT_TRUE(left() || left()) << "a stranger gets a challenge at most";
                }
              }),
              AllOf(SizeIs(strangers.size()), Each(HasSubstr("127.0.0.1:"))));
}

// The stranger has recorded the messages of a client that has the key, and repeats them.
TEST_F(ControlProofTest, ReplayedProofIsRefused) {
  listen(key_of(1));
  EXPECT_THAT(
      warnings_of([&] {
        ControlProof recorded;
        ControlChannel client = connect();
        ASSERT_TRUE(client.send({{"type", "prove"}, {"nonce", cli::to_hex(recorded.client)}}));
        auto challenge = client.expect("challenge", kPatience);
        ASSERT_TRUE(challenge);
        ASSERT_TRUE(cli::bytes_field(*challenge, "nonce", recorded.server));
        const Json proof{{"type", "proof"}, {"mac", cli::to_hex(recorded.mac(key_, "client"))}};
        ASSERT_TRUE(client.send(proof));
        ASSERT_TRUE(client.expect("proof", kPatience)) << "the proof was accepted the first time";

        ControlChannel stranger = connect();
        ASSERT_TRUE(stranger.send({{"type", "prove"}, {"nonce", cli::to_hex(recorded.client)}}));
        ASSERT_TRUE(stranger.expect("challenge", kPatience));
        ASSERT_TRUE(stranger.send(proof));
        EXPECT_FALSE(stranger.expect("proof", kPatience));
      }),
      ::testing::Contains(HasSubstr("another cluster key")));
}

// A client whose server may not have the key.
class ControlProofServerTest : public ::testing::Test {
 protected:
  ControlProofServerTest() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    client_.emplace(FileDescriptor(fds[0]), "server:1");
    server_.emplace(FileDescriptor(fds[1]), "client:1");
  }

  // Why the client gives up; "" if it does not.
  template <typename Answer>
  std::string refusal(Answer answer) {
    std::string why;
    std::thread client([&] {
      const auto proved = prove(*client_, key_of(1), kPatience);
      if (!proved) why = proved.error().message;
    });
    const auto begun = server_->expect("prove", kPatience);
    EXPECT_TRUE(begun);
    ControlProof proof;
    EXPECT_TRUE(cli::bytes_field(*begun, "nonce", proof.client));
    EXPECT_TRUE(server_->send({{"type", "challenge"}, {"nonce", cli::to_hex(proof.server)}}));
    const auto shown = server_->expect("proof", kPatience);
    EXPECT_TRUE(shown);
    const auto mac = answer(proof, shown->value("mac", ""));
    EXPECT_TRUE(server_->send({{"type", "proof"}, {"mac", mac}}));
    client.join();
    return why;
  }

  std::optional<ControlChannel> client_;
  std::optional<ControlChannel> server_;
};

TEST_F(ControlProofServerTest, ServerMustProveTheKeyToTheClient) {
  EXPECT_EQ(refusal([](const ControlProof& proof, const std::string&) {
              return cli::to_hex(proof.mac(key_of(1), "server"));
            }),
            "");
  EXPECT_THAT(refusal([](const ControlProof& proof, const std::string&) {
                return cli::to_hex(proof.mac(key_of(2), "server"));
              }),
              AllOf(HasSubstr("the server server:1 has another cluster key"), HasSubstr(kCure)));
}

TEST_F(ControlProofServerTest, ServerCannotReflectTheClientsProof) {
  EXPECT_THAT(refusal([](const ControlProof&, const std::string& mac) { return mac; }),
              HasSubstr("has another cluster key"));
}

TEST_F(ControlProofServerTest, ServerWithoutAProofIsRefused) {
  ASSERT_TRUE(server_->send({{"type", "welcome"}}));
  EXPECT_FALSE(prove(*client_, key_of(1), kPatience));
}

TEST(ControlProof, MacDependsOnKeySideAndNonces) {
  ControlProof proof;
  const auto own = proof.mac(key_of(1), "client");
  EXPECT_EQ(proof.mac(key_of(1), "client"), own);
  EXPECT_NE(proof.mac(key_of(1), "server"), own);
  EXPECT_NE(proof.mac(key_of(2), "client"), own);
  for (bootstrap::Nonce* nonce : {&proof.client, &proof.server}) {
    nonce->back() = 1;
    EXPECT_NE(proof.mac(key_of(1), "client"), own);
    nonce->back() = 0;
  }
}

TEST(ControlProof, BytesSurviveTheirHexEncoding) {
  const std::array<uint8_t, 4> bytes{0x00, 0x7f, 0x80, 0xff};
  EXPECT_EQ(cli::to_hex(bytes), "007f80ff");
  std::array<uint8_t, 4> read{};
  EXPECT_TRUE(cli::bytes_field({{"x", "007f80ff"}}, "x", read));
  EXPECT_EQ(read, bytes);
  for (const char* text : {"", "007f80f", "007f80ff0", "007F80FF", "007f80fg", " 07f80ff"}) {
    EXPECT_FALSE(cli::bytes_field({{"x", text}}, "x", read)) << text;
  }
}

}  // namespace
}  // namespace pacecar::perf::control_proof_test
