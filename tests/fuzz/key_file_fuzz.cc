// A key file with any content: an accepted key begins the file, is within the bounds of length, and
// does not end with a newline.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/base/file_descriptor.h"
#include "transport/engine/open/cluster_key.h"

namespace pacecar::key_file_fuzz {

FUZZ_TARGET(key_file) {
  const FileDescriptor file(::memfd_create("key", MFD_CLOEXEC));
  PACECAR_CHECK(file && ::fchmod(file.get(), 0600) == 0);
  PACECAR_CHECK(::write(file.get(), data, size) == static_cast<ssize_t>(size));
  const auto key = read_cluster_key("/proc/self/fd/" + std::to_string(file.get()));
  if (!key) return 0;
  PACECAR_CHECK(key->bytes.size() >= kMinClusterKey && key->bytes.size() <= kMaxClusterKey);
  PACECAR_CHECK(key->bytes.back() != '\n');
  PACECAR_CHECK(key->bytes.size() <= size &&
                std::equal(key->bytes.begin(), key->bytes.end(), data));
  return 0;
}

}  // namespace pacecar::key_file_fuzz
