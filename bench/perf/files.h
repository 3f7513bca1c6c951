// Files that a subcommand reads and writes, and standard output: each failure is one sentence.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "transport/base/result.h"

namespace pacecar::perf {

// As the name of a file: standard output.
inline constexpr std::string_view kStandardOutput = "-";

// The whole file. Errors: kNotFound, kSystem (a directory, not readable).
Result<std::string> read_text(const std::string& path);

// Whether write_text() could write there; called before the measurement. Makes a missing file.
// Empty: nothing to write. Errors: kSystem.
Result<void> check_writable(const std::string& path);
// Replaces the file. Errors: kSystem, also where the disk is full.
Result<void> write_text(const std::string& path, std::string_view text);
// The same of a document.
Result<void> write_json(const std::string& path, const nlohmann::json& document);
// Whether all that was printed to standard output has arrived. Errors: kSystem.
Result<void> flush_output();

}  // namespace pacecar::perf
