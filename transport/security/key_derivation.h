// HKDF with SHA-256 (RFC 5869): keys for many purposes from one secret.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pacecar {

// `salt` and `purpose` together must differ for any two keys.
void derive_key(std::span<const uint8_t> secret, std::span<const uint8_t> salt,
                std::string_view purpose, std::span<uint8_t> key);

}  // namespace pacecar
