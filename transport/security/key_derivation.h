// HKDF-SHA256 (RFC 5869): derives keys for many purposes from one secret. Pure. Thread rule: any.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pacecar {

// Fills `key`. Use each pair of salt and purpose for one key of a secret only.
void derive_key(std::span<const uint8_t> secret, std::span<const uint8_t> salt,
                std::string_view purpose, std::span<uint8_t> key);

}  // namespace pacecar
