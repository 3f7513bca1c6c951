# Writes a C++ source with a function that gives files as bytes:
# cmake -DOUTPUT=x.cc -DFILES=a|b -DFUNCTION=page_parts -P embed.cmake
string(REPLACE "|" ";" files "${FILES}")
set(arrays "")
set(rows "")
set(index 0)
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND arrays "constexpr char kPart${index}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", {kPart${index}, sizeof kPart${index}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"bench/ab/report/report.h\"

namespace pacecar {
namespace {

${arrays}
constexpr PagePart kParts[] = {
${rows}};

}  // namespace

std::span<const PagePart> ${FUNCTION}() { return kParts; }

}  // namespace pacecar
")
