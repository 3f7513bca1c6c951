"""Finds the mutation points of a C++ source by libclang: the place and rewriting of each point, and
its mutants.

Not mutated, by rule:
- values of declarations: named constants, default values of members and of parameters, bounds,
  labels, template arguments; the compiler evaluates most values;
- arguments of macros: our own checks are tests themselves;
- calls that change only time or text, and their arguments (`skipped_calls`);
- functions that only list constants (`skipped_functions`).
"""
import dataclasses
import re

import clang.cindex
from clang.cindex import CursorKind, TypeKind

RELATIONAL = {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"],
              "==": ["!="], "!=": ["=="]}
ARITHMETIC = {"+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"],
              "&": ["|"], "|": ["&"], "^": ["&"], "<<": [">>"], ">>": ["<<"]}
LOGICAL = {"&&": "||", "||": "&&"}
FUNCTORS = {"<": "std::less<>", "<=": "std::less_equal<>", ">": "std::greater<>",
            ">=": "std::greater_equal<>", "==": "std::equal_to<>", "!=": "std::not_equal_to<>",
            "+": "std::plus<>", "-": "std::minus<>", "*": "std::multiplies<>",
            "/": "std::divides<>", "%": "std::modulus<>", "&": "std::bit_and<>",
            "|": "std::bit_or<>", "^": "std::bit_xor<>", "<<": "mutation::ShiftLeft",
            ">>": "mutation::ShiftRight"}
ASSIGNMENTS = {"+": "Add", "-": "Subtract", "*": "Multiply", "/": "Divide", "%": "Remainder",
               "&": "And", "|": "Or", "^": "Xor", "<<": "Left", ">>": "Right"}
NUMBER = re.compile(rb"(0[xX][0-9a-fA-F']+|[0-9][0-9']*)([uUlLzZ]*)")
COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)

FUNCTIONS = {CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR,
             CursorKind.DESTRUCTOR, CursorKind.CONVERSION_FUNCTION, CursorKind.FUNCTION_TEMPLATE,
             CursorKind.LAMBDA_EXPR}
LEFT_ALONE = {CursorKind.FIELD_DECL, CursorKind.ENUM_DECL, CursorKind.STATIC_ASSERT,
              CursorKind.PARM_DECL, CursorKind.TYPEDEF_DECL, CursorKind.TYPE_ALIAS_DECL,
              CursorKind.TYPE_ALIAS_TEMPLATE_DECL, CursorKind.TEMPLATE_TYPE_PARAMETER,
              CursorKind.TEMPLATE_NON_TYPE_PARAMETER, CursorKind.CXX_UNARY_EXPR,
              CursorKind.DECL_REF_EXPR, CursorKind.TYPE_REF, CursorKind.TEMPLATE_REF,
              CursorKind.CXX_BASE_SPECIFIER}
LITERALS = {CursorKind.INTEGER_LITERAL, CursorKind.FLOATING_LITERAL,
            CursorKind.CXX_BOOL_LITERAL_EXPR}


@dataclasses.dataclass(frozen=True)
class Mutant:
    line: int
    was: str
    became: str


@dataclasses.dataclass
class Point:
    """`wraps` and `cuts` are (from, to, text, text) and (from, to, text) in bytes of the source;
    '@0', '@1' in their texts stand for the numbers of the point's mutants."""
    wraps: list
    cuts: list
    mutants: list


def parse(path, arguments):
    """The translation unit of a file; raises ValueError with the first error of clang."""
    options = clang.cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
    unit = clang.cindex.Index.create().parse(str(path), arguments, options=options)
    errors = [str(d) for d in unit.diagnostics if d.severity >= clang.cindex.Diagnostic.Error]
    if errors:
        raise ValueError(f"{path} does not compile by itself: {errors[0]}")
    return unit


def find(path, arguments, skipped_calls, skipped_functions=()):
    """All points of a file."""
    return _Finder(path, arguments, skipped_calls, skipped_functions).points


def kind_of(node):
    try:
        return node.kind
    except ValueError:  # newer than these bindings
        return None


class _Finder:
    def __init__(self, path, arguments, skipped_calls, skipped_functions):
        self.text = path.read_bytes()
        self.skipped_calls = set(skipped_calls)
        self.skipped_functions = set(skipped_functions)
        self.points = []
        self.known = set()
        self.in_function = False
        unit = parse(path, ["-x", "c++", *arguments])
        own = [node for node in unit.cursor.get_children()
               if node.location.file and node.location.file.name == str(path)]
        self.macros = [self.place(node) for node in own
                       if kind_of(node) == CursorKind.MACRO_INSTANTIATION]
        for node in own:
            if not node.kind.is_preprocessing():
                self.visit(node)

    # --- places ---

    @staticmethod
    def place(node):
        return node.extent.start.offset, node.extent.end.offset

    def slice(self, node):
        start, end = self.place(node)
        return self.text[start:end]

    def between(self, left, right):
        text = self.text[self.place(left)[1]:self.place(right)[0]]
        return COMMENT.sub(b"", text).strip().decode()

    def in_macro(self, node):
        start, end = self.place(node)
        return any(first <= start and end <= last for first, last in self.macros)

    # --- points ---

    def mutant(self, *edits):
        """The line where the first edit (from, to, text) begins, before and after all edits."""
        first = edits[0][0]
        begin = self.text.rfind(b"\n", 0, first) + 1
        end = (self.text + b"\n").find(b"\n", first)
        was = self.text[begin:end]
        became = was
        for start, stop, text in reversed(edits):
            if start <= end:
                became = became[:start - begin] + text.encode() + became[min(stop, end) - begin:]
        line = self.text.count(b"\n", 0, first) + 1
        return Mutant(line, was.decode().strip(), became.decode().strip())

    def add(self, name, node, wraps, cuts, mutants):
        start, end = self.place(node)
        if start < end and (name, start, end) not in self.known:
            self.known.add((name, start, end))
            self.points.append(Point(wraps, cuts, mutants))

    def operator(self, node, left, right):
        """A binary operator; true if the node is one that has mutants."""
        symbol = self.between(left, right)
        if self.place(left)[1] > self.place(right)[0]:
            return False
        start, end = self.place(node)
        at = self.text.index(symbol.encode(), self.place(left)[1]) if symbol else 0
        if symbol in LOGICAL:
            sides = [(*self.place(side), "mutation::flip<@0>(", ")") for side in (left, right)]
            self.add("operator", node, [(start, end, "mutation::flip<@0>(", ")"), *sides], [],
                     [self.mutant((at, at + 2, LOGICAL[symbol]))])
            return True
        others = (RELATIONAL | ARITHMETIC).get(symbol)
        if others is None:
            return False
        functors = ", ".join(FUNCTORS[name] for name in [symbol, *others])
        self.add("operator", node, [(start, end, f"mutation::binary<@0, {functors}>(", ")")],
                 [(self.place(left)[1], self.place(right)[0], ", ")],
                 [self.mutant((at, at + len(symbol), other)) for other in others])
        return True

    def assignment(self, node, left, right):
        symbol = self.between(left, right)
        if symbol[:-1] not in ARITHMETIC or self.is_bit_field(left) or \
                self.slice(right).startswith(b"{"):
            return
        other = ARITHMETIC[symbol[:-1]][0]
        names = f"mutation::{ASSIGNMENTS[symbol[:-1]]}, mutation::{ASSIGNMENTS[other]}"
        at = self.text.index(symbol.encode(), self.place(left)[1])
        self.add("operator", node, [(*self.place(node), f"mutation::assign<@0, {names}>(", ")")],
                 [(self.place(left)[1], self.place(right)[0], ", ")],
                 [self.mutant((at, at + len(symbol), other + "="))])

    def step(self, node, operand):
        start, end = self.place(node)
        before = self.text[start:self.place(operand)[0]]
        symbol = before or self.text[self.place(operand)[1]:end]
        if symbol not in (b"++", b"--") or self.is_bit_field(operand):
            return
        where = (start, start + 2) if before else (end - 2, end)
        name = "step_before" if before else "step_after"
        sign = 1 if symbol == b"++" else -1
        self.add("operator", node, [(start, end, f"mutation::{name}<@0, {sign}>(", ")")],
                 [(*where, "")], [self.mutant((*where, "--" if sign > 0 else "++"))])

    def literal(self, node):
        start, end = self.place(node)
        text = self.text[start:end]
        if text in (b"true", b"false"):
            other = "false" if text == b"true" else "true"
            values = [(other, other)]
        elif number := NUMBER.fullmatch(text):
            digits = number[1].decode().replace("'", "")
            value = int(digits, 0)
            shown = hex if digits[:2].lower() == "0x" else str
            suffix = number[2].decode()
            values = [(shown(other), shown(other) + suffix)
                      for other in ([value + 1, value - 1] if value > 0 else [1])]
        elif kind_of(node) == CursorKind.FLOATING_LITERAL and text[:1].isdigit():
            value = float(text.rstrip(b"fFlL").replace(b"'", b""))
            values = [(repr(2 * value or 1.0),) * 2]
        else:
            return
        others = ", ".join(code for _, code in values)
        self.add("literal", node, [(start, end, "mutation::constant<@0>(", f", {others})")], [],
                 [self.mutant((start, end, shown)) for shown, _ in values])

    def condition(self, node):
        """A boolean expression: its operator has mutants, or a mutant negates the whole."""
        inner = self.bare(node)
        if kind_of(inner) == CursorKind.CXX_BOOL_LITERAL_EXPR or self.is_comparison(inner):
            return self.visit(node)
        if self.is_own(node):
            start, end = self.place(node)
            self.add("negation", node, [(start, end, "mutation::flip<@0>(", ")")], [],
                     [self.mutant((start, start, "!("), (end, end, ")"))])
        self.visit(node)

    def statement(self, node):
        """A statement: a mutant removes an assignment or the call of a void function."""
        inner = self.bare(node)
        kind = kind_of(inner)
        removed = kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR or (
            kind == CursorKind.CALL_EXPR and (
                inner.type.kind == TypeKind.VOID or
                re.fullmatch(r"operator[-+*/%&|^]?=", inner.spelling)))
        if kind == CursorKind.BINARY_OPERATOR:
            sides = list(inner.get_children())
            removed = len(sides) == 2 and self.between(*sides) == "="
        if removed and inner.spelling not in self.skipped_calls and self.is_own(inner):
            start, end = self.place(inner)
            self.add("removal", inner, [(start, end, "mutation::on(@0) ? void() : void(", ")")],
                     [], [self.mutant((start, end, ""))])
        self.visit(node)

    # --- kinds of nodes ---

    @staticmethod
    def bare(node):
        """The node without the implicit conversions and clean-ups around it."""
        while kind_of(node) == CursorKind.UNEXPOSED_EXPR:
            children = list(node.get_children())
            if len(children) != 1 or children[0].extent != node.extent:
                break
            node = children[0]
        return node

    @staticmethod
    def is_bit_field(node):
        target = node.referenced
        return target is not None and target.is_bitfield()

    def is_comparison(self, node):
        sides = self.sides(node)
        return sides is not None and self.between(*sides) in RELATIONAL | LOGICAL

    def is_own(self, node):
        start, end = self.place(node)
        return start < end and not self.in_macro(node)

    @staticmethod
    def sides(node):
        """Both sides of a binary operator, built in or overloaded."""
        kind = kind_of(node)
        if kind in (CursorKind.BINARY_OPERATOR, CursorKind.COMPOUND_ASSIGNMENT_OPERATOR):
            sides = list(node.get_children())
        elif kind == CursorKind.CALL_EXPR and node.spelling.startswith("operator"):
            sides = list(node.get_arguments())
        elif kind == CursorKind.UNEXPOSED_EXPR:  # a < b, rewritten by the compiler as (a <=> b) < 0
            return _Finder.rewritten(node)
        else:
            return None
        return sides if len(sides) == 2 else None

    @staticmethod
    def rewritten(node):
        found = [inner for inner in node.walk_preorder() if inner.extent == node.extent and
                 kind_of(inner) == CursorKind.CALL_EXPR and
                 inner.spelling in ("operator<=>", "operator==")]
        sides = list(found[-1].get_arguments()) if found else []
        return sides if len(sides) == 2 else None

    # --- the walk ---

    def visit(self, node):
        kind = kind_of(node)
        if kind in LEFT_ALONE or self.in_macro(node):
            return None
        if kind in FUNCTIONS:
            if node.spelling in self.skipped_functions:
                return None
            outer, self.in_function = self.in_function, True
            self.children(node)
            self.in_function = outer
            return None
        if kind == CursorKind.VAR_DECL:
            return self.variable(node)
        if kind in LITERALS:
            return self.literal(node)
        if kind == CursorKind.CALL_EXPR and node.spelling in self.skipped_calls:
            return None
        if kind is not None and kind.is_statement():
            return self.visit_statement(node, kind)
        return self.visit_expression(node, kind)

    def children(self, node):
        for child in node.get_children():
            self.visit(child)

    def variable(self, node):
        start = node.extent.start.offset
        name = node.location.offset + len(node.spelling)
        if not self.in_function or re.search(rb"\bconst(expr|init)\b", self.text[start:name]):
            return
        children = list(node.get_children())
        if not children or not kind_of(children[-1]) or not kind_of(children[-1]).is_expression():
            return
        first = self.place(children[-1])[0]
        if first >= name and re.match(rb"\s*(\[[^]]*\]\s*)?[={(]", self.text[name:first + 1]):
            self.visit(children[-1])

    def visit_statement(self, node, kind):
        children = list(node.get_children())
        if kind == CursorKind.IF_STMT:
            return self.branch(node, children)
        if kind in (CursorKind.WHILE_STMT, CursorKind.DO_STMT, CursorKind.FOR_STMT):
            body = 0 if kind == CursorKind.DO_STMT else len(children) - 1
            has_variable = any(kind_of(child) == CursorKind.VAR_DECL for child in children)
            for number, child in enumerate(children):
                if number == body:
                    self.statement(child)
                elif child.type.kind == TypeKind.BOOL and not has_variable:
                    self.condition(child)
                else:
                    self.visit(child)
        elif kind == CursorKind.CXX_FOR_RANGE_STMT:
            for child in children[:-1]:
                if kind_of(child) != CursorKind.VAR_DECL:
                    self.visit(child)
            self.statement(children[-1])
        elif kind == CursorKind.CASE_STMT:
            for child in children[1:]:
                self.statement(child)
        elif kind in (CursorKind.COMPOUND_STMT, CursorKind.DEFAULT_STMT):
            for child in children:
                self.statement(child)
        elif kind == CursorKind.RETURN_STMT and children:
            returned = children[0]
            if returned.type.kind == TypeKind.BOOL:
                self.condition(returned)
            elif returned.type.kind == TypeKind.VOID:
                self.statement(returned)
            else:
                self.visit(returned)
        else:
            self.children(node)
        return None

    def branch(self, node, children):
        constant = re.match(rb"if\s+constexpr\b", self.slice(node))
        has_variable = kind_of(children[0]) in (CursorKind.VAR_DECL, CursorKind.DECL_STMT)
        condition = next((number for number, child in enumerate(children)
                          if kind_of(child) and kind_of(child).is_expression()), 0)
        for number, child in enumerate(children):
            if number > condition:
                self.statement(child)
            elif constant or (number == condition and
                              self.place(child)[0] < self.place(children[0])[1] and has_variable):
                continue
            elif number == condition:
                self.condition(child)
            else:
                self.visit(child)

    def visit_expression(self, node, kind):
        children = list(node.get_children())
        sides = self.sides(node)
        if sides and self.is_own(node):
            symbol = self.between(*sides)
            if symbol in LOGICAL:
                self.operator(node, *sides)
                for side in sides:
                    self.condition(side)
                return
            if self.operator(node, *sides):
                for side in sides:
                    self.visit(side)
                return
            if symbol == "=" and kind_of(self.bare(sides[1])) == CursorKind.CXX_BOOL_LITERAL_EXPR:
                return self.visit(sides[0])
            self.assignment(node, *sides)
        if kind == CursorKind.CONDITIONAL_OPERATOR and self.is_own(node):
            self.condition(children[0])
            for child in children[1:]:
                self.visit(child)
            return
        if kind == CursorKind.UNARY_OPERATOR and children:
            self.step(node, children[0])
        elif kind == CursorKind.CALL_EXPR and node.spelling in ("operator++", "operator--"):
            self.step(node, next(iter(node.get_arguments()), node))
        self.children(node)
