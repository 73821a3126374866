"""The page on the module, the types of its names, and its constants."""
import ast
import contextlib
import io
import os
import re

import harmonics

from shared import SOURCE, TINY, Case, program


def blocks(page):
    """(language, text) of every block of code."""
    return re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


class Documents(Case):
    def test_the_examples_print_what_the_page_shows(self):
        page = (SOURCE / "docs/python.md").read_text()
        self.write("my_model.ndsl", TINY)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        names, shown, run = {}, "", 0
        for language, text in blocks(page):
            if language == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(text, "docs/python.md", "exec"), names)
                shown, run = printed.getvalue(), run + 1
            elif language == "text":
                self.assertEqual(shown, text)
                shown = ""
        self.assertGreater(run, 4)
        self.assertEqual(shown, "")  # all output is shown

    def test_the_type_declarations_have_every_name(self):
        declarations = ast.parse((SOURCE / "python/harmonics.pyi").read_text())
        names = {"__version__"}
        for node in declarations.body:
            if isinstance(node, ast.ClassDef):
                members = set()
                for member in node.body:
                    if isinstance(member, ast.FunctionDef):
                        members.add(member.name)
                    elif isinstance(member, ast.AnnAssign):
                        members.add(member.target.id)
                    elif isinstance(member, ast.Assign):
                        members.add(member.targets[0].id)
                public = {n for n in vars(getattr(harmonics, node.name)) if not n.startswith("_")}
                if node.name != "Error":  # its members belong to the objects
                    self.assertEqual({m for m in members if not m.startswith("_")}, public, node.name)
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names.add(node.name)
            elif isinstance(node, ast.AnnAssign):
                names.add(node.target.id)
        self.assertEqual({n for n in dir(harmonics) if not n.startswith("_")}, names - {"__version__"})

    def test_specific_overloads_precede_general_ones(self):
        declarations = ast.parse((SOURCE / "python/harmonics.pyi").read_text())
        graph = next(node for node in declarations.body if getattr(node, "name", "") == "HarmonicGraph")
        taken = [ast.unparse(f.args.posonlyargs[-1].annotation) for f in graph.body
                 if getattr(f, "name", "") == "infer" and len(f.args.posonlyargs) == 2]
        self.assertEqual(taken, ["Dict[str, Array]", "Array"])  # Array is any type

    def test_constants(self):
        self.assertEqual(harmonics.__version__, program("--version").split()[1])
        self.assertEqual(harmonics.contract[0], 1)
        rows = re.findall(r'\{HX_\w+, "(\w+)"', (SOURCE / "engine/plugin/kinds.cpp").read_text())
        self.assertEqual(sorted(harmonics.kinds), sorted(rows))
        header = (SOURCE / "include/harmonics/error.hpp").read_text()
        kinds = re.search(r"enum class ErrorKind.*?\{(.*?)\}", header, re.S)
        named = re.findall(r"(\w+) = (\d+)", kinds.group(1))
        snake = [re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower() for name, _ in named]
        self.assertEqual(list(harmonics.error_kinds), snake)
        self.assertIn("bf16", harmonics.dtypes)
