#!/usr/bin/env python3
"""Feeds each check good and bad examples: a check that cannot fail is no check."""

import pathlib
import subprocess
import tempfile
import unittest

import cpp_functions
import examples
import figures
import includes
import lengths
import names
import parameters
import picture
import prose
import purity
import readmes
import references
import words
from tree import Tree

RULES = {
    "roots": ["low", "high", "tests"],
    "includes": {"low": [], "high": ["low/open.h"], "tests": ["low", "high"]},
    "pure": {"folders": ["low"], "system_headers": ["chrono", "sys/.*"],
             "symbols": ["getenv", "recv(from)?"], "exempt_objects": {"exempt.o": "a reason"}},
    "lengths": {"file_lines": 10, "columns": 40, "function_lines": 4},
    "readmes": {"files_without": 3, "covered_by_parent": ["tests/unit"]},
    "parameters": {"page": "README.md", "other_names": ["PACECAR_OPTION"],
                   "removed": ["PACECAR_OLD"]},
    "names": {"roots": ["low", "high"], "instead": {"told": "reported", "hear": "receive"},
              "most": {"low": 1}},
    "prose": {"most": {"low": 1}},
    "examples": {"header": "low/api.h", "program": "low/tour.cc"},
    "figures": {"readme": "README.md", "heading": "## Results", "results": "low/results.md"},
    "references": {"documents": ["low/about.md"]},
    "sleeps": {"tests/patient.cc": "a reason"},
}


class CheckTest(unittest.TestCase):
    rules = RULES

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def problems(self, check, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check.check(Tree(self.root, self.rules))

    def assert_clean(self, check, files):
        self.assertEqual(self.problems(check, files), [])

    def assert_one(self, check, files, part):
        problems = self.problems(check, files)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(part, problems[0])


class IncludesTest(CheckTest):
    def test_allowed_includes_pass(self):
        self.assert_clean(includes, {
            "low/open.h": "#include <vector>\n", "low/deep/own.h": '#include "low/open.h"\n',
            "high/a.cc": '#include "low/open.h"\n#include <chrono>\n'})

    def test_an_include_of_a_higher_layer_is_found(self):
        self.assert_one(includes, {"high/a.h": "", "low/b.h": '#include "high/a.h"\n'}, "low may")

    def test_an_include_of_a_private_header_is_found(self):
        self.assert_one(includes, {"low/own.h": "", "high/a.cc": '#include "low/own.h"\n'},
                        "high may")

    def test_a_path_not_from_the_root_is_found(self):
        self.assert_one(includes, {"low/a.h": "", "low/b.cc": '#include "a.h"\n'}, "from the root")

    def test_a_system_header_in_a_pure_layer_is_found(self):
        self.assert_one(includes, {"low/a.cc": "#include <sys/socket.h>\n"}, "pure")

    def test_a_folder_without_rules_is_found(self):
        self.assert_one(includes, {"stray.cc": ""}, "no line")


class PurityTest(CheckTest):
    def archive(self, source, member):
        subprocess.run(["c++", "-x", "c++", "-c", "-", "-o", self.root / member], input=source,
                       check=True, text=True)
        library = self.root / "lib.a"
        subprocess.run(["ar", "rc", library, self.root / member], check=True)
        return [str(library)]

    def check(self, libraries):
        return purity.check(Tree(self.root, RULES), libraries)

    def test_a_pure_library_passes(self):
        self.assertEqual(self.check(self.archive("int twice(int a) { return 2 * a; }", "a.o")), [])

    def test_a_forbidden_call_is_found(self):
        source = '#include <cstdlib>\nchar* f() { return getenv("A"); }'
        problems = self.check(self.archive(source, "a.o"))
        self.assertEqual(len(problems), 1)
        self.assertIn("a.o calls getenv", problems[0])

    def test_an_exempt_object_passes(self):
        source = '#include <cstdlib>\nchar* f() { return getenv("A"); }'
        self.assertEqual(self.check(self.archive(source, "exempt.o")), [])

    def test_no_library_is_a_problem(self):
        self.assertEqual(len(self.check([])), 1)


class LengthsTest(CheckTest):
    def test_short_code_passes(self):
        self.assert_clean(lengths, {"low/a.cc": "int f() {\n  return 1;\n}\n"})

    def test_a_long_file_is_found(self):
        self.assert_one(lengths, {"low/a.h": "\n" * 11}, "11 lines")

    def test_a_long_line_is_found(self):
        self.assert_one(lengths, {"low/a.py": "# " + "a" * 39}, "a.py:1: 41 columns")

    def test_a_long_cpp_function_is_found(self):
        text = "namespace a {\n\nint f() {\n  if (1) {\n  }\n\n  return 1;\n}\n}\n"
        self.assert_one(lengths, {"low/a.cc": text}, "a.cc:3: a function of 6 lines")

    def test_a_long_python_function_is_found(self):
        self.assert_one(lengths, {"low/a.py": "def f():\n" + "    f()\n" * 4}, "5 lines")


class CppFunctionsTest(unittest.TestCase):
    def test_only_functions_are_found(self):
        text = '''struct alignas(64) A {  // } not a brace
  int x = {3};
  A(int y) : x(y) {
  }
  const char* brace() { return "{"; }
};
#define MACRO(x) {
enum class B { kOne };
int table[] = {1, 2};
TEST(A, B) {
  auto f = [] { return '}'; };
}
'''
        self.assertEqual(cpp_functions.functions(text), [(3, 2), (5, 1), (10, 3)])


class ReadmesTest(CheckTest):
    FILES = {f"low/{i}.h": "" for i in range(4)}
    UNIT = {f"tests/unit/{i}.cc": "" for i in range(4)}

    def test_a_readme_passes(self):
        self.assert_clean(readmes, {**self.FILES, "low/README.md": "# low\n"})

    def test_a_readme_without_a_heading_is_found(self):
        self.assert_one(readmes, {**self.FILES, "low/README.md": "#low :\n"}, "low/README.md: its")

    def test_a_missing_readme_is_found(self):
        self.assert_one(readmes, self.FILES, "low: 4 source files")

    def test_the_readme_of_the_parent_passes(self):
        self.assert_clean(readmes, {**self.UNIT, "tests/README.md": "# tests\n"})

    def test_a_missing_readme_of_the_parent_is_found(self):
        self.assert_one(readmes, self.UNIT, "tests/unit: 4")


class ParametersTest(CheckTest):
    TABLE = "| parameter | x |\n|---|---|\n| `PACECAR_A` | 1 |\n"

    def check(self, readme):
        (self.root / "README.md").write_text(readme)
        return parameters.check(Tree(self.root, RULES), ["printf", "%s", self.TABLE])

    def test_an_equal_table_passes(self):
        self.assertEqual(self.check("PACECAR_OPTION\n\n" + self.TABLE + "\nmore\n"), [])

    def test_an_unknown_parameter_is_found(self):
        self.assertEqual(self.check(self.TABLE + "\nsee PACECAR_B\n"),
                         ["README.md: PACECAR_B is no parameter"])

    def test_a_removed_parameter_is_named_in_the_history_only(self):
        (self.root / "CHANGELOG.md").write_text("PACECAR_OLD\n")
        self.assertEqual(self.check("PACECAR_OLD\n\n" + self.TABLE),
                         ["README.md: PACECAR_OLD is no parameter"])

    def test_a_different_table_is_found(self):
        self.assertEqual(len(self.check(self.TABLE.replace("1", "2"))), 1)

    def test_a_missing_table_is_found(self):
        self.assertEqual(len(self.check("")), 1)


class PictureTest(CheckTest):
    rules = {**RULES, "roots": ["transport", "cc", "bench"]}
    FILES = {"transport/base/a.h": "", "cc/a.h": '#include "transport/base/a.h"\n',
             "bench/a.cc": '#include "cc/a.h"\n#include "transport/base/a.h"\n#include <vector>\n'}

    def draw(self):
        files = [(name, (self.root / name).read_text()) for name in self.FILES]
        path = self.root / picture.GRAPH
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(picture.drawing().graph(files))

    def test_a_current_picture_passes(self):
        self.problems(picture, self.FILES)
        self.draw()
        self.assert_clean(picture, {})

    def test_an_outdated_picture_is_found(self):
        self.problems(picture, self.FILES)
        self.draw()
        self.assert_one(picture, {"cc/a.h": "", "bench/a.cc": ""}, "run `python3")

    def test_a_missing_picture_is_found(self):
        self.assert_one(picture, self.FILES, "run `python3")

    def test_a_cycle_of_includes_is_found(self):
        self.assert_one(picture, {"cc/b.h": '#include "bench/b.h"\n',
                                  "bench/b.h": '#include "cc/b.h"\n'}, "include each other")


class NamesTest(CheckTest):
    OLD = {"low/a.h": "struct A { virtual void told(int x); };  // hear, and \"told_2\""}

    def test_the_allowed_number_of_names_passes(self):
        self.assert_clean(names, self.OLD)

    def test_uses_and_overrides_do_not_count(self):
        self.assert_clean(names, {
            **self.OLD, "high/b.cc": "struct B : A { void told(int) override; };"
                                     "int f(A& a) { if (a.told(1)) return told(2); }"})

    def test_each_kind_of_declaration_is_found(self):
        for code in ("bool told_late_ = false;", "void B::hear(int x) {", "struct ToldOnce {",
                     "enum class E { kA, kTold };", "for (const auto& told : all) {",
                     "std::vector<int> told_;", "int f(Rate told) {", "template <typename Hear>"):
            self.assert_one(names, {**self.OLD, "high/b.cc": code}, "the field's word")

    def test_one_name_more_is_found(self):
        self.assert_one(names, {"low/a.h": self.OLD["low/a.h"] + "\nint told_2;"}, "2 names")

    def test_fewer_names_ask_for_a_lower_limit(self):
        self.assert_one(names, {"low/a.h": ""}, "write 0")


class ProseTest(CheckTest):
    OLD = {"low/a.h": "// What is told\nint what_is_told;  // the peer's answer, as before\n"}
    rules = {**RULES, "prose": {"most": {"low": 2}}}

    def test_code_blocks_and_the_allowed_number_pass(self):
        self.assert_clean(prose, {**self.OLD, "a.md": "```\nthose that\n```\n`told`, that many\n"})

    def test_phrases_of_comments_pages_and_docstrings_are_found(self):
        for name, text in (("b.h", "// as TCP's.\n"), ("b.py", '"""Sends\nthose that wait."""\n'),
                           ("b.py", "f()  # so many bytes\n"), ("b.toml", "# likewise\n")):
            self.assert_one(prose, {**self.OLD, f"high/{name}": text}, "high: 1 phrases")
            (self.root / "high" / name).unlink()
        self.assert_one(prose, {**self.OLD, "high/b.md": "It is no link.\n"}, "pages: 1 phrases")

    def test_fewer_phrases_ask_for_a_lower_limit(self):
        self.assert_one(prose, {"low/a.h": "// told\n"}, "write 1")


class ExamplesTest(CheckTest):
    HEADER = "// Moves.\n//   move(1);\nvoid move(int);\n"

    def test_an_example_in_the_program_passes(self):
        self.assert_clean(examples, {"low/api.h": self.HEADER, "low/tour.cc": "f(); move(1);\n"})

    def test_an_example_outside_of_the_program_is_found(self):
        self.assert_one(examples, {"low/api.h": self.HEADER, "low/tour.cc": "move(2);"},
                        "low/api.h:2")


class ReferencesTest(CheckTest):
    CODE = {"low/queue.h": "struct Queue { void take(); };", "low/a.txt": "make_library()"}

    def assert_named(self, text):
        self.assert_clean(references, {**self.CODE, "low/about.md": text})

    def assert_not(self, text, part):
        self.assert_one(references, {**self.CODE, "low/about.md": text}, part)

    def test_existing_references_pass(self):
        self.assert_named("# A: b\n[a](queue.h), [b](#a-b), [c](about.md#a-b), [d](https://x.y/z)\n"
                          "`queue.h`, `low/queue.*`, `Queue::take`, `make_library`, `open_NAME`\n"
                          "```\n[x](nowhere)\n`no::name`\n```\n")

    def test_a_link_to_no_file_is_found(self):
        self.assert_not("[a](stack.h)", "no such file")

    def test_a_link_to_no_heading_is_found(self):
        self.assert_not("# A\n[a](#b)", "no such heading")

    def test_a_missing_file_is_found(self):
        self.assert_not("`low/stack.h`", "the file low/stack.h")

    def test_a_missing_file_without_folder_is_found(self):
        self.assert_not("`stack.*`", "the file stack.*")

    def test_a_missing_function_is_found(self):
        self.assert_not("`Queue::give`", "Queue::give")

    def test_other_documents_may_name_anything(self):
        self.assert_clean(references, {"high/about.md": "`low/stack.h`", "low/about.md": ""})


class FiguresTest(CheckTest):
    PAGE = "| a | 0.82 | 12 KB |\nOn 2026-11-26 it took 1,351 us, -30%."

    def readme(self, row):
        return {"low/results.md": self.PAGE,
                "README.md": f"# A\n7.7\n## Results\n9.9\n| x | {row} |\n## More\n| 8.8 |\n"}

    def test_figures_of_the_page_pass(self):
        self.assert_clean(figures, self.readme("8 ranks: 0.82, 12 KB; 1,351 us, -30% | 2026-11-26"))

    def test_another_number_is_found(self):
        self.assert_one(figures, self.readme("0.83"), "'0.83' does not stand in low/results.md")

    def test_another_unit_is_found(self):
        self.assert_one(figures, self.readme("12 MB"), "'12 MB'")

    def test_part_of_a_number_is_no_figure(self):
        self.assert_one(figures, self.readme("351 us"), "'351 us'")

    def test_another_percentage_and_date_are_found(self):
        self.assertEqual(len(self.problems(figures, self.readme("+30% on 2026-11-27"))), 2)

    def test_a_missing_table_is_found(self):
        self.assert_one(figures, {"low/results.md": self.PAGE, "README.md": "# A\n"}, "no table")


class WordsTest(CheckTest):
    def test_clean_words_pass(self):
        self.assert_clean(words, {"low/a.md": "see ./build/home/x and mkstemp(aX" "XXXXX)",
                                  "tests/patient.cc": "std::this_thread::sleep_for(a);"})

    def test_a_mark_of_unfinished_code_is_found(self):
        self.assert_one(words, {"low/a.h": "// TO" "DO: later"}, "finish it")

    def test_private_made_public_is_found(self):
        self.assert_one(words, {"tests/a.cc": "#define private" " public"}, "interface")

    def test_a_path_of_one_machine_is_found(self):
        self.assert_one(words, {"notes.md": "see /ho" "me/me/x"}, "one machine")

    def test_a_sleeping_test_is_found(self):
        self.assert_one(words, {"tests/a.cc": "std::this_thread::sleep_for(a);"}, "wait for")


if __name__ == "__main__":
    unittest.main()
