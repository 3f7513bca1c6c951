// Ciphers, keys and replay windows of packets, against published vectors and OpenSSL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "transport/base/prng.h"
#include "transport/security/key_derivation.h"
#include "transport/security/key_exchange.h"
#include "transport/security/packet_cipher.h"
#include "transport/security/packet_keys.h"
#include "transport/security/replay_window.h"

namespace pacecar::security_test {
namespace {

using ::testing::ElementsAreArray;
using Octets = std::vector<uint8_t>;

Octets from_hex(std::string_view text) {
  Octets octets;
  for (size_t i = 0; i < text.size(); i += 2) {
    octets.push_back(static_cast<uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return octets;
}

template <typename Array>
Array array_of(std::string_view hex) {
  Array array;
  std::ranges::copy(from_hex(hex), array.begin());
  return array;
}

// Test case 4 of the specification of GCM (McGrew and Viega, 2005).
struct GoldenGcm {
  PacketCipher::Key key = array_of<PacketCipher::Key>("feffe9928665731c6d6a8f9467308308");
  PacketCipher::Nonce nonce = array_of<PacketCipher::Nonce>("cafebabefacedbaddecaf888");
  Octets clear = from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  Octets plain = from_hex(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
  Octets sealed = from_hex(
      "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
      "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091");
  Octets tag = from_hex("5bc94fbc3221a5db94fae95ae7121a47");
};

struct CipherOf : PacketCipher {
  explicit CipherOf(const Key& key) { set_key(key); }
};

TEST(PacketCipher, SealMatchesThePublishedVector) {
  const GoldenGcm golden;
  Octets sealed(golden.plain.size());
  Octets tag(16);
  CipherOf(golden.key).seal(golden.nonce, golden.clear, golden.plain, sealed.data(), tag);
  EXPECT_EQ(sealed, golden.sealed);
  EXPECT_EQ(tag, golden.tag);
}

TEST(PacketCipher, OnlyUnchangedPacketsAreOpened) {
  const GoldenGcm golden;
  const CipherOf cipher(golden.key);
  Octets plain(golden.plain.size());
  EXPECT_TRUE(cipher.open(golden.nonce, golden.clear, golden.sealed, plain.data(), golden.tag));
  EXPECT_EQ(plain, golden.plain);
  for (GoldenGcm changed; Octets * part : {&changed.clear, &changed.sealed, &changed.tag}) {
    for (uint8_t& octet : *part) {
      octet ^= 0x10;
      EXPECT_FALSE(
          cipher.open(changed.nonce, changed.clear, changed.sealed, plain.data(), changed.tag));
      octet ^= 0x10;
    }
  }
  for (GoldenGcm changed; uint8_t & octet : changed.nonce) {
    octet ^= 1;
    EXPECT_FALSE(
        cipher.open(changed.nonce, changed.clear, changed.sealed, plain.data(), changed.tag));
    octet ^= 1;
  }
}

TEST(PacketCipher, ShortTagIsAPrefixOfTheFullTag) {
  const GoldenGcm golden;
  const CipherOf cipher(golden.key);
  Octets tag(8);
  Octets out(golden.plain.size());
  cipher.seal(golden.nonce, golden.clear, golden.plain, out.data(), tag);
  EXPECT_THAT(tag, ElementsAreArray(std::span(golden.tag).first(8)));
  EXPECT_TRUE(cipher.open(golden.nonce, golden.clear, golden.sealed, out.data(), tag));
  tag[7] ^= 1;
  EXPECT_FALSE(cipher.open(golden.nonce, golden.clear, golden.sealed, out.data(), tag));
}

// Every length below 300 bytes, and some longer ones, for which a library may have separate code.
TEST(PacketCipher, AgreesWithOpenSsl) {
  Prng prng(7);
  const auto random = [&prng](size_t size) {
    Octets octets(size);
    for (uint8_t& octet : octets) octet = static_cast<uint8_t>(prng.next_u64());
    return octets;
  };
  EVP_CIPHER_CTX* const reference = EVP_CIPHER_CTX_new();
  std::vector<size_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 0);
  for (const size_t size : {1023, 1024, 1408, 4096, 8192, 9000, 65'000}) sizes.push_back(size);
  for (const size_t size : sizes) {
    PacketCipher::Key key;
    PacketCipher::Nonce nonce;
    std::ranges::copy(random(key.size()), key.begin());
    std::ranges::copy(random(nonce.size()), nonce.begin());
    const Octets clear = random(1 + prng.below(200));
    const Octets plain = random(size);
    Octets sealed(size + 16);
    Octets tag(16);
    CipherOf(key).seal(nonce, clear, plain, sealed.data(), tag);
    Octets expected(size + 16);
    Octets expected_tag(16);
    int length = 0;
    EVP_EncryptInit_ex(reference, EVP_aes_128_gcm(), nullptr, key.data(), nonce.data());
    EVP_EncryptUpdate(reference, nullptr, &length, clear.data(), static_cast<int>(clear.size()));
    EVP_EncryptUpdate(reference, expected.data(), &length, plain.data(), static_cast<int>(size));
    EVP_EncryptFinal_ex(reference, nullptr, &length);
    EVP_CIPHER_CTX_ctrl(reference, EVP_CTRL_AEAD_GET_TAG, 16, expected_tag.data());
    ASSERT_EQ(sealed, expected) << size;
    ASSERT_EQ(tag, expected_tag) << size;
  }
  EVP_CIPHER_CTX_free(reference);
}

// RFC 7748, 6.1.
TEST(KeyExchange, SecretMatchesThePublishedVector) {
  const KeyExchange bob(
      array_of<Secret>("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"));
  EXPECT_EQ(bob.public_key(),
            array_of<KeyExchange::PublicKey>(
                "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
  EXPECT_EQ(bob.agree(array_of<KeyExchange::PublicKey>(
                "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")),
            array_of<Secret>("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"));
}

TEST(KeyExchange, PublicKeysOfLowOrderAreRefused) {
  const KeyExchange honest(Secret{1, 2, 3});
  EXPECT_EQ(honest.agree(KeyExchange::PublicKey{}), std::nullopt);
  EXPECT_EQ(honest.agree(KeyExchange::PublicKey{1}), std::nullopt);
}

// RFC 5869, A.1: the first 32 bytes of its output.
TEST(KeyDerivation, KeyMatchesHkdf) {
  const Octets secret(22, 0x0B);
  Secret key;
  derive_key(secret, from_hex("000102030405060708090a0b0c"),
             "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9", key);
  EXPECT_EQ(key,
            array_of<Secret>("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"));
}

// RFC 5869, A.3: the first 32 bytes of its output.
TEST(KeyDerivation, MissingSaltCountsAsZeros) {
  Secret key;
  derive_key(Octets(22, 0x0B), {}, "", key);
  EXPECT_EQ(key,
            array_of<Secret>("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"));
}

TEST(KeyDerivation, KeyDependsOnPurposeAndSalt) {
  const Octets secret(32, 1);
  const auto key = [&secret](const Octets& salt, std::string_view purpose) {
    Secret derived;
    derive_key(secret, salt, purpose, derived);
    return derived;
  };
  EXPECT_EQ(key({1}, "a"), key({1}, "a"));
  EXPECT_NE(key({1}, "a"), key({1}, "b"));
  EXPECT_NE(key({1}, "a"), key({2}, "a"));
}

// --- changing keys ---

// Seals a packet at one end; returns whether the other end opens it.
bool opens(SealingKeys& from, OpeningKeys& to) {
  const uint64_t count = from.count();
  const Octets clear{1, 2, 3};
  Octets tag(8);
  const KeyedCipher& sealing = from.current();
  sealing.cipher.seal(sealing.nonce(count, 3), clear, {}, nullptr, tag);
  const KeyedCipher* const opening = to.of(count);
  if (opening == nullptr) return false;
  if (!opening->cipher.open(opening->nonce(count, 3), clear, {}, nullptr, tag)) return false;
  to.opened(count);
  return true;
}

TEST(PacketKeys, BothEndsChangeKeysAtTheSamePacket) {
  SealingKeys sealing(Secret{5}, 3);
  OpeningKeys opening(Secret{5}, 3);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(opens(sealing, opening)) << i;
}

TEST(PacketKeys, KeysOfAnotherSecretOpenNothing) {
  SealingKeys sealing(Secret{5}, 3);
  OpeningKeys opening(Secret{6}, 3);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(opens(sealing, opening));
}

TEST(PacketKeys, EachEpochHasItsOwnKey) {
  SealingKeys sealing(Secret{5}, 1);
  std::vector<Octets> tags;
  for (int i = 0; i < 8; ++i) {
    const uint64_t count = sealing.count();
    Octets tag(16);
    // All tags have the same nonce, so they differ only if the keys do.
    if (count % 2 == 0) sealing.current().cipher.seal({}, Octets{1}, {}, nullptr, tag);
    if (count % 2 == 0) tags.push_back(tag);
  }
  std::ranges::sort(tags);
  EXPECT_EQ(std::ranges::adjacent_find(tags), tags.end());
}

TEST(PacketKeys, OldAndFarAheadEpochsHaveNoKey) {
  SealingKeys sealing(Secret{5}, 3);
  OpeningKeys opening(Secret{5}, 3);
  while (sealing.count() < 8 * 4) {
  }
  EXPECT_EQ(opening.of(8 * 4), nullptr) << "four epochs ahead";
  SealingKeys again(Secret{5}, 3);
  for (int i = 0; i < 8 * 3; ++i) ASSERT_TRUE(opens(again, opening));
  EXPECT_NE(opening.of(8 * 3), nullptr) << "the current epoch";
  EXPECT_NE(opening.of(8 * 3 - 1), nullptr) << "the previous epoch";
  EXPECT_EQ(opening.of(8 * 2 - 1), nullptr);
  EXPECT_NE(opening.of(8 * 4), nullptr) << "the next epoch";
  EXPECT_EQ(opening.of(8 * 5), nullptr);
}

TEST(PacketKeys, ForgedPacketOfTheNextEpochDoesNotChangeTheEpoch) {
  SealingKeys sealing(Secret{5}, 3);
  OpeningKeys opening(Secret{5}, 3);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(opens(sealing, opening)) << i;
    const uint64_t epoch = static_cast<uint64_t>(i + 1) / 8;
    EXPECT_NE(opening.of((epoch + 1) * 8), nullptr);  // of a packet that is not opened
  }
}

// --- replay ---

TEST(ReplayWindow, EachCounterIsTakenOnceInAnyOrder) {
  constexpr uint32_t kWidth = 256;
  ReplayWindow window(kWidth);
  std::vector<uint64_t> taken;
  Prng prng(3);
  uint64_t newest = 0;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t jump = prng.below(100) == 0 ? prng.below(2000) : prng.below(8);
    const uint64_t back = prng.below(kWidth * 2);
    const uint64_t counter = prng.below(3) == 0 ? newest + jump : newest - std::min(newest, back);
    if (counter == 0) continue;
    const bool known = std::ranges::find(taken, counter) != taken.end();
    const bool fresh = window.fresh(counter);
    ASSERT_FALSE(known && fresh) << counter;
    ASSERT_FALSE(counter + kWidth <= newest && fresh) << counter;
    ASSERT_TRUE(known || fresh || counter + kWidth - 64 <= newest) << counter;
    if (!fresh) continue;
    window.take(counter);
    newest = std::max(newest, counter);
    taken.push_back(counter);
    if (taken.size() > 4 * kWidth) taken.erase(taken.begin(), taken.begin() + kWidth);
  }
  EXPECT_EQ(window.newest(), newest);
}

TEST(ReplayWindow, CountersBelowTheWindowAreRefused) {
  ReplayWindow window(128);
  window.take(1000);
  EXPECT_FALSE(window.fresh(1000));
  EXPECT_TRUE(window.fresh(999));
  EXPECT_TRUE(window.fresh(1000 - 64));
  EXPECT_FALSE(window.fresh(1000 - 128));
  EXPECT_FALSE(window.fresh(1));
}

}  // namespace
}  // namespace pacecar::security_test
