"""Coq's statements have the constants of docs/theory.md: both are read, and evaluated at some numbers."""

import math
import re
from random import Random

import pytest
from places import ROOT

DOCS = ROOT / "docs"
THEORY = (DOCS / "theory.md").read_text()

PAIRS = {
    # Of each theorem the file, where its formula is in it, and where on the page.
    "strong_convexity": ("VertexDistance", r"(16 / \(H \* S\)) <= h''", r"h'' \\ge (16 / \(H S\))\$, with"),
    "potential": (
        "VertexDistance",
        r"H \* S \* h' v = (2 \* \(l \+ sinh \(S / H \* l\) / \(S / H\)\))\.",
        r"H S h'\(v\) = (.+?)\. \\qquad \(7\)",
    ),
    "from_the_middle": (
        "Middle",
        r"let bound := (2 \* INR d \* .+?) in",
        r"D\(u, \\tfrac12\) \\le (\\frac\{2 d A\}\{H S\}),",
    ),
    "at_equal_temperatures": (
        "Middle",
        r"\(1 / 2\) = (\(1 - 2 \* eps\) \* ln \(\(1 - eps\) / eps\))\.",
        r"\$H\^2 D\(1 - \\varepsilon, \\frac12\) = (.+?)\$",
    ),
    "between_the_corners": (
        "VertexDistance",
        r"D H S 1 eps - D H S 0 eps = (.+?)\.\n",
        r"D\(1, \\varepsilon\) - D\(0, \\varepsilon\) = (.+?) \\quad",
    ),
    "leaving_a_wrong_corner": (
        "ReadOff",
        r"let l := ln \(\(1 - eps\) / eps\) in\n  (2 / .+?) <= INR n\.",
        r"\$\$(\\frac\{2\}\{H S \\eta G\} .+?) \\quad \\text\{steps",
    ),
    "time_to_read_off": (
        "ReadOff",
        r"\n  (2 / .+?) <= INR n ->\n  b <= H \* w",
        r"n \\ge (\\frac\{2\}\{H S \\eta \\underline g\} .+?)\.\$\$",
    ),
    "curvature": (
        "Curvature",
        r"Derive_n Phi 2 w <= (.+?)\.\n",
        r"\\Phi''\(w\) \\le (.+?)\. \\qquad \(13\)",
    ),
    "regret": (
        "Regret",
        r"Definition K .*\n  (.+?)\.\n",
        r"K = (\(1 \+ \\rho\^2\) \\psi\(2 \\delta\) \\frac\{H S\}\{32\}), \\qquad \(15\)",
    ),
    "exact_regret": ("ExactStep", r"\+ eta \* (\(H \* S / 32\))", r"\(16\) holds with \$K = (H S / 32)\$"),
    "heavy_ball": (
        "HeavyBall",
        r"- divergence d H S u heading\) / eta'\s+\+ (eta' \* [^:]+?) \* total T \(fun t => norm d .+\.",
        r"\\frac\{D - D'\}\{\\eta'\} \+ (.+?) \\sum",
    ),
    "heavy_ball's delta'": (
        "HeavyBall",
        r"let delta' := (eta' \* G \* S \^ 2 / 4) in",
        r"\$\\delta' = (\\eta' G S\^2 / 4)\$ and\n",
    ),
    "descent": (
        "Descent",
        r"F v' <= F v - (eta / 2) \* total",
        r"F\(v\^\+\) \\le F\(v\) - (\\frac\{\\eta\}\{2\})",
    ),
    "descent's rate": (
        "Descent",
        r"Theorem descent .*\n.*0 < eta <= (16 / \(L \* H \* S\)) ->",
        r"\$\\eta \\le (\\frac\{16\}\{L H S\})\$ has, with",
    ),
    "step_error": (
        "StepError",
        r"norm d r <= (Rmax .+?) \* norm d g /\\",
        r"\\lVert r \\rVert \\le (\\max .+?) \\lVert g",
    ),
    "step_error's other": (
        "StepError",
        r"\* norm d g <= (\(1 \+ H \* S / 16\)) \* norm",
        r"\\le (\\Big\( 1 \+ \\frac\{H S\}\{16\} \\Big\)) \\lVert g \\rVert\. \\qquad \(20\)",
    ),
}


def of_coq(formula):
    """A formula of Coq in Python."""
    formula = formula.replace("delta S eta G", "delta").replace("I_of (S / H)", "I").replace("^", "**")
    formula = re.sub(r"\bINR ", "", formula)
    formula = re.sub(r"\b(ln|exp) ([\w']+)", r"\1(\2)", formula)
    formula = re.sub(r"\bRmax (\d+) (\(.+\))", r"max(\1, \2)", formula)
    return " ".join(formula.replace("'", "_").split())


NAMES = {"\\varepsilon": "eps", "\\ell": "l", "\\log": "ln", "\\underline g": "gamma"}
FUNCTIONS = {"sinh", "ln", "psi", "max"}


class OfThePage:
    """A formula of the page in Python: spaces are products there, and a function takes the rest of one."""

    def __init__(self, formula):
        formula = re.sub(r"\\Big(?![a-z])|\\(?=frac)", "", formula)
        for name, python in NAMES.items():
            formula = formula.replace(name, f" {python} ")
        self.left = re.findall(r"frac|\\?[a-z]{2,}'?|[A-Za-z]'?|\d+|[-+/^(){},]", formula)

    def next(self, *among):
        return bool(self.left) and self.left[0] in among

    def sum(self):
        said = self.product()
        while self.next("+", "-", ","):
            said += self.left.pop(0) + self.product()
        return said

    def product(self):
        said = self.left.pop(0) if self.next("-") else ""
        said += self.factor()
        while self.left and not self.next("+", "-", ",", ")", "}"):
            said += self.left.pop(0) + self.factor() if self.next("/") else "*" + self.factor()
        return said

    def factor(self):
        said = self.atom()
        if not self.next("^"):
            return said
        self.left.pop(0)
        return f"exp{self.atom()}" if said == "e" else f"{said}**{self.atom()}"

    def atom(self):
        token = self.left.pop(0).lstrip("\\").replace("'", "_")
        if token in "({":
            said = self.sum()
            self.left.pop(0)
            return f"({said})"
        if token == "frac":
            return f"({self.atom()}/{self.atom()})"
        if token in FUNCTIONS:
            return f"{token}{self.atom()}" if self.next("(") else f"{token}({self.product()})"
        return token


def numbers(random):
    """Values of all variables, as they hang together."""
    names = ("H", "S", "L", "G", "I", "d", "b", "l", "n", "mu", "eps", "eta", "eta_", "delta", "delta_")
    of = {name: random.uniform(0.1, 0.9) for name in names}
    of |= {"H": random.uniform(1, 9), "S": random.uniform(1, 9)}
    of |= {"rho": of["S"] / of["H"], "A": math.log(2) + of["I"], "gamma": of["G"]}
    functions = {"ln": math.log, "exp": math.exp, "sinh": math.sinh, "max": max}
    return of | functions | {"psi": lambda x: 2 * (math.exp(x) - 1 - x) / x**2}


def only(pattern, text):
    found = {match[1] for match in re.finditer(pattern, text)}
    assert len(found) == 1, f"{pattern} is there {len(found)} times"
    return found.pop()


@pytest.mark.parametrize("theorem", PAIRS)
def test_a_theorem_has_the_constants_of_the_page(theorem):
    file, in_coq, on_the_page = PAIRS[theorem]
    proved = of_coq(only(in_coq, (DOCS / "proofs" / f"{file}.v").read_text()))
    said = OfThePage(only(on_the_page, THEORY)).sum()
    random = Random(0)
    for _ in range(5):
        at = numbers(random)
        assert eval(proved, dict(at)) == pytest.approx(eval(said, dict(at)), rel=1e-12), (proved, said)
