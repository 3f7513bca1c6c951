#!/usr/bin/python3
"""Mutates the example, whose score is known, and measures a known coverage."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))

import points  # noqa: E402
import report  # noqa: E402
import sources  # noqa: E402


def call(*command):
    return subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)


class ScratchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name)


class RunTest(ScratchTest):
    def run_on_example(self, *options):
        return call(HERE / "run", "--source", HERE / "example", "--config",
                    HERE / "example" / "mutation.toml", "--work", self.scratch, "--jobs", 2,
                    *options)

    def test_the_example_has_its_known_score(self):
        done = self.run_on_example("--all", "--least", 54)
        self.assertEqual(done.returncode, 0, done.stderr)
        row = next(line for line in done.stdout.splitlines() if line.startswith("product "))
        #                                    mutants, killed, survived, unreached, accepted
        self.assertEqual(row.split(), ["product", "12", "6", "2", "3", "1", "54.5%"])
        self.assertIn("became  bool is_limited(int value) { return value >= kMost && value != 0; }",
                      done.stdout)
        self.assertNotIn("{ return value >= kMost ? kMost", done.stdout)  # an accepted survivor
        sample = self.run_on_example("--mutants", 3, "--seed", 5, "--no-build", "--least", 100)
        self.assertRegex(sample.stdout, r"\nall +3 ")
        self.assertEqual(sample.returncode, 1)
        again = self.run_on_example("--all", "--again", "--no-build")
        self.assertEqual(again.stdout, done.stdout)


class RewriteTest(ScratchTest):
    def points_of(self, code):
        path = self.scratch / "code.cc"
        path.write_text(code)
        return points.find(path, ["-std=c++20"], ["quiet"])

    def mutants_of(self, code):
        return [mutant.became for point in self.points_of(code) for mutant in point.mutants]

    def test_each_kind_of_point_has_its_mutants(self):
        for code, became in {
                "bool f(int a, int b) { return a < b; }": ["a <= b", "a >= b"],
                "int f(int a) { return -a * a; }": ["-a / a"],
                "bool f(bool a, bool b) { return a && b; }": ["a || b", "!(a) &&", "&& !(b)"],
                "int f(bool a) { return a ? 7 : 0; }": ["!(a) ?", "? 8 :", "? 6 :", ": 1;"],
                "void f(int& a) { a = 0; }": ["{ ; }", "a = 1"],
                "void f(double& a) { a += 0.5; }": ["{ ; }", "a -= 0.5", "a += 1.0"],
                "void f(int* a) { ++*a; }": ["--*a"],
                "int f(const int* a) { return *a++; }": ["*a--"],
                "void g(); void f() { g(); }": ["f() { ; }"],
                "bool f() { return true; }": ["return false;"]}.items():
            with self.subTest(code):
                found = self.mutants_of(code)
                self.assertEqual(len(found), len(became), found)
                for text, part in zip(found, became):
                    self.assertIn(part, text)

    def test_declarations_macros_and_skipped_calls_have_no_mutants(self):
        for code in ("constexpr int k = 1 + 2;", "struct S { int a = 1; };", "enum { kA = 3 };",
                     "void f(int a = 5);", "int a[3];", "static_assert(1 < 2);",
                     "#define CHECK(c) ((c) ? 0 : 1)\nvoid f(int a) { (void)CHECK(a < 3); }",
                     "void quiet(int); void f(int a) { quiet(a + 1); }",
                     "template <int k> int g(); int f() { return g<4>(); }",
                     "int f(int a) { switch (a) { case 1: return a; default: return a; } }"):
            with self.subTest(code):
                self.assertEqual(self.mutants_of(code), [])

    def test_rewritten_nested_points_compile(self):
        code = "bool f(int a, int b) { return a + 1 < b && !(b % 3 == a++); }\n" \
               "void g(int& a) { if (a) a = a - 1; else a <<= 2; }\n"
        found = self.points_of(code)
        text = f'#include "{HERE}/point.h"\n'.encode() + sources.rewrite(code.encode(), found, 1)
        path = self.scratch / "rewritten.cc"
        path.write_bytes(text)
        self.assertEqual(points.parse(path, ["-std=c++20"]).cursor.spelling, str(path))


class AcceptedTest(ScratchTest):
    MUTANT = sources.Numbered(1, "a.cc", 3, "a < b", "a <= b", 0)

    def accepted(self, became):
        path = self.scratch / "accepted.toml"
        path.write_text(f'[[accepted]]\nfile = "a.cc"\nwas = "a < b"\nbecame = ["{became}"]\n'
                        'reason = "never equal"\n')
        return report.Accepted(path)

    def test_an_accepted_survivor_has_its_reason(self):
        accepted = self.accepted("a <= b")
        self.assertEqual(accepted.problems([self.MUTANT], {self.MUTANT.key: report.SURVIVED}), [])
        self.assertEqual(accepted.reason(self.MUTANT), "never equal")

    def test_outdated_entries_are_reported(self):
        self.assertIn("no mutant", self.accepted("a > b").problems([self.MUTANT], {})[0])
        killed = self.accepted("a <= b").problems([self.MUTANT], {self.MUTANT.key: report.KILLED})
        self.assertIn("but killed", killed[0])


class CoverageTest(ScratchTest):
    def test_uncalled_functions_and_the_share_of_lines_are_reported(self):
        code = self.scratch / "cc" / "code.cc"
        code.parent.mkdir()
        code.write_text("int called(int a) {\n  if (a > 0) return 1;\n  return 2;\n}\n"
                        "int uncalled() {\n  return 3;\n}\n"
                        "int main(int count, char**) {\n  return called(count) - 1;\n}\n")
        program = self.scratch / "program"
        built = call("g++", "--coverage", "-O0", "-o", program, "-dumpbase", "code", "-dumpdir",
                     f"{self.scratch}/", code)
        self.assertEqual(built.returncode, 0, built.stderr)
        self.assertEqual(call(program).returncode, 0)
        done = call(HERE.parent / "coverage", "--built", self.scratch, "--source", self.scratch)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"\ncc +4 of +7 +57\.1%")
        self.assertIn("the pure layers", done.stdout)
        self.assertRegex(done.stdout, r"never called: cc/code\.cc:5: .*uncalled")


if __name__ == "__main__":
    unittest.main()
