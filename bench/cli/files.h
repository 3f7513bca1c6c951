// Files that a subcommand reads and writes, and standard output: each failure is one sentence.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "transport/base/result.h"

namespace pacecar::cli {

// As the name of a file: standard output.
inline constexpr std::string_view kStandardOutput = "-";

// The whole file. Errors: kNotFound, kSystem (a directory, not readable).
Result<std::string> read_text(const std::string& path);

// Checks before a measurement that write_text() can write there. An empty path is not an error.
// Errors: kSystem.
Result<void> check_writable(const std::string& path);
// Replaces the file. Errors: kSystem, also where the disk is full.
Result<void> write_text(const std::string& path, std::string_view text);
// Writes the document as text with indents. An empty path is no error. Errors: kSystem.
Result<void> write_json(const std::string& path, const nlohmann::json& document);
// Prints the text, unless the document takes standard output, and writes the document.
Result<void> write_results(std::string_view text, const std::string& json_file,
                           const nlohmann::json& document);
// Flushes standard output. Errors: kSystem (some of the output was lost).
Result<void> flush_output();

}  // namespace pacecar::cli
