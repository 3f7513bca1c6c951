// Reads the file that PACECAR_KEY_FILE names: the key that the hosts of a cluster share. A file
// that other users could have read or written is refused, as its key is not secret. The file is
// read once, during set-up. Thread rule: any.
#pragma once

#include <string>

#include "transport/base/result.h"
#include "transport/engine/bootstrap/auth.h"

namespace pacecar {

// Bytes, without the newlines at the end of the file.
constexpr size_t kMinClusterKey = 16;
constexpr size_t kMaxClusterKey = 4096;

// An empty name gives no key. Never blocks, for any kind of file. Errors: kNotFound, kPermission or
// kSystem (it cannot be read), kPermission (others may read or write it, or own it),
// kInvalidArgument (no regular file, too short, too long).
Result<bootstrap::ClusterKey> read_cluster_key(const std::string& file);

}  // namespace pacecar
