"""Compiles a kernel file as C++ for OpenCL, whose address spaces are Metal's, and reports what Metal would refuse.

clang's own errors come first: pointers of one address space used as another's, writes to `constant`, globals, double,
virtual, exceptions, implicit vector conversions. What only OpenCL's generic address space lets through, and what the race
checker could not see, is then looked for in clang's dump of the syntax tree.

    check_kernel.py CLANG INCLUDE_FOLDER FILE.clcpp [--marked SOURCE.metal]

With --marked, the lines that end in `// refused` have to be the ones with an error, and no others.
"""
import re
import subprocess
import sys

FLAGS = ["-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "-fsyntax-only", "-Wno-everything", "-ferror-limit=0",
         "-fno-color-diagnostics", "-Xclang", "-cl-ext=-cl_khr_fp64,-__opencl_c_fp64,"
         "-__opencl_c_program_scope_global_variables,-__opencl_c_device_enqueue,-__opencl_c_pipes"]
PLACE = re.compile(r"([\w./-]+\.(?:metal|h)|[\w./-]*metal_stdlib):(\d+):\d+")


def compile_errors(command):
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = []
    for line in run.stderr.splitlines():
        found = re.match(r"(.*?):(\d+):\d+: (?:fatal )?error: (.*)", line)
        if found:
            errors.append((found[1], int(found[2]), found[3]))
    if run.returncode and not errors:
        sys.exit(f"{command[0]} failed:\n{run.stderr}")
    return errors


class Node:
    """One line of the dump, with its place and depth."""

    def __init__(self, text):
        found = re.match(r"^([ |`-]*)(\w+)", text)
        self.depth = len(found[1]) // 2 if found else -1
        self.kind = found[2] if found else ""
        self.text = text


def is_generated(stack):
    """Whether a node belongs to what the compiler adds: copy constructors and assignments."""
    for node in stack:
        if node.kind.endswith("Decl") and (" implicit " in node.text or "operator=" in node.text
                                           or node.kind == "CXXConstructorDecl"):
            return True
    return False


def problem_of(node, stack, following):
    if "__generic" in node.text:
        if node.kind in ("VarDecl", "ParmVarDecl", "FieldDecl"):
            return "pointer or reference without an address space: " + re.search(r"\w+ '[^']*'", node.text)[0]
        if node.kind == "ImplicitCastExpr" and "AddressSpaceConversion" in node.text and "__private" not in following:
            outer = [n for n in stack[:-1] if n.kind not in ("ImplicitCastExpr", "ParenExpr")]
            if outer and outer[-1].kind == "MemberExpr":
                return "method called on an object outside thread memory"
    # The sanitizer's hooks that the race checker answers exist for 1, 2, 4, 8 and 16 bytes.
    vector = re.search(r"'[^'*]*__(?:global|local)[^'*]*':'([^'*]*)ext_vector_type\((\d)\)\)\)' lvalue", node.text)
    if vector and (vector[2] == "3" or ("long" in vector[1] and vector[2] == "4")):
        return "an access of 3 components or more than 16 bytes is unseen by the race checker: use a packed type or parts"
    return None


def tree_errors(command):
    dump = subprocess.run(command + ["-Xclang", "-ast-dump"], capture_output=True, text=True, check=False).stdout
    nodes = [Node(line) for line in dump.splitlines()]
    file, line, stack, errors = "", 0, [], []
    for at, node in enumerate(nodes):
        if node.depth < 0:
            continue
        place = re.search(r"<([^<>]*(?:<scratch space>[^<>]*)?)>", node.text)
        if place:
            for found in PLACE.findall(place[1]):
                file, line = found[0], int(found[1])
            own = re.findall(r"\bline:(\d+)", place[1].split(",")[0])
            line = int(own[-1]) if own else line
        del stack[node.depth:]
        stack.append(node)
        if "/emulator/include/" in file or is_generated(stack):
            continue
        following = nodes[at + 1].text if at + 1 < len(nodes) else ""
        problem = problem_of(node, stack, following)
        if problem and (file, line, problem) not in errors:
            errors.append((file, line, problem))
    return errors


def main():
    clang, includes, source = sys.argv[1:4]
    command = [clang, *FLAGS, "-I" + includes, source]
    errors = compile_errors(command) + tree_errors(command)
    for file, line, message in errors:
        print(f"{file}:{line}: error: {message}")
    if "--marked" not in sys.argv:
        return 1 if errors else 0
    with open(sys.argv[sys.argv.index("--marked") + 1], encoding="utf-8") as marked:
        expected = {number for number, text in enumerate(marked, 1) if text.rstrip().endswith("// refused")}
    found = {line for file, line, _ in errors if file.endswith("refused.metal")}
    for number in sorted(expected - found):
        print(f"line {number} is not refused")
    for number in sorted(found - expected):
        print(f"line {number} is refused")
    return 0 if expected == found and expected else 1


if __name__ == "__main__":
    sys.exit(main())
