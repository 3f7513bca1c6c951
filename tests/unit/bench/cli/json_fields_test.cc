#include "bench/cli/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace pacecar::cli::json_fields_test {
namespace {

std::string nested(size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(ParseJsonTest, NestingIsBounded) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)).is_array());
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth + 1)).is_discarded());
  EXPECT_TRUE(parse_json(std::string(1'000'000, '[')).is_discarded());
  EXPECT_TRUE(parse_json("{\"a\":" + nested(kMaxJsonDepth) + "}").is_discarded());
}

TEST(ParseJsonTest, SiblingsAreNotNesting) {
  std::string text = "[[]";
  for (size_t i = 0; i < 10 * kMaxJsonDepth; ++i) text += ",{\"a\":[]}";
  EXPECT_EQ(parse_json(text + "]").size(), 1 + 10 * kMaxJsonDepth);
}

TEST(ParseJsonTest, BracketsInStringsDoNotNest) {
  const std::string open(2 * kMaxJsonDepth, '[');
  EXPECT_EQ(parse_json("\"" + open + "\""), open);
  EXPECT_EQ(parse_json("\"\\\"" + open + "\""), "\"" + open) << "an escaped quote ends no string";
  EXPECT_TRUE(parse_json("[\"\\\\\"," + nested(kMaxJsonDepth) + "]").is_discarded())
      << "an escaped backslash escapes no quote";
}

TEST(ParseJsonTest, InvalidJsonIsDiscarded) {
  for (const char* text : {"", "]", "}}", "[", "\"", "\"\\", "{\"a\":}", "nope"}) {
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
  }
}

}  // namespace
}  // namespace pacecar::cli::json_fields_test
