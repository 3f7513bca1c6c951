// What our own plugins call beyond pacecar.hpp. Not installed.
#pragma once

#include "transport/api/pacecar.hpp"

namespace pacecar {

class StagedRange;

// A Context with GPU memory that its NICs do not reach.
class CopyingContext {
 public:
  // Copies by the GPU, for access of the processor to memory of kind kCuda. Errors:
  // kInvalidArgument (no such memory), kSystem.
  virtual Result<std::shared_ptr<StagedRange>> copies_of(const MemoryRange& range) = 0;

 protected:
  ~CopyingContext() = default;
};

// A SendConnection that copies messages first.
class CopyingConnection {
 public:
  virtual void advance() = 0;  // Posts messages that have been copied, as test() does.

 protected:
  ~CopyingConnection() = default;
};

// The same for any Context and connection.
inline Result<std::shared_ptr<StagedRange>> copies_of(Context& context, const MemoryRange& range) {
  auto* const copying = dynamic_cast<CopyingContext*>(&context);
  if (copying != nullptr) return copying->copies_of(range);
  return fail(ErrorCode::kInvalidArgument, "no NIC of this process takes GPU memory");
}
inline void advance(SendConnection& connection) {
  if (auto* const copying = dynamic_cast<CopyingConnection*>(&connection)) copying->advance();
}

}  // namespace pacecar
