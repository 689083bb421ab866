"""Names of a tree, each with the symbol that it stands for, by scope."""
from __future__ import annotations
import ast, re, sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = {"plugins": "", "tests": "tests", "bench": "bench", "dags": "dags"}

def modules(root: Path = ROOT) -> dict[str, Path]:
    out = {}
    for top in ("plugins", "tests", "bench", "dags"):
        for p in sorted((root / top).rglob("*.py")):
            rel = p.relative_to(root)
            if "data" in rel.parts[:2] and top == "tests": continue
            parts = list(rel.with_suffix("").parts)
            if top == "plugins": parts = parts[1:]
            if parts[-1] == "__init__": parts = parts[:-1]
            if parts: out[".".join(parts)] = p
    out["run"] = root / "run.py"
    return out

@dataclass(eq=False)
class Scope:
    kind: str            # module function class
    qual: str
    parent: "Scope | None"
    names: dict = field(default_factory=dict)   # name -> "local" | ("import", mod, name) | ("module", mod)
    freed: set = field(default_factory=set)     # global names
    nonlocals: set = field(default_factory=set)

@dataclass
class Occ:
    line: int; col: int; name: str; symbol: str | None; kind: str; node: object = None

COMPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

class Module:
    def __init__(self, name: str, path: Path, known: dict[str, Path]):
        self.name, self.path, self.known = name, path, known
        self.text = path.read_text()
        self.lines = self.text.split("\n")
        self.bytes = [l.encode() for l in self.lines]
        self.tree = ast.parse(self.text)
        self.scopes: dict[ast.AST, Scope] = {}
        self.top = Scope("module", "", None)
        self.docs: list[tuple[Scope, ast.Constant]] = []
        self._bind(self.tree, self.top)

    # --- first pass: what each scope binds
    def _bind(self, node, scope):
        self.scopes[node] = scope
        for child in ast.iter_child_nodes(node):
            self._bind_node(child, scope)

    def _bind_node(self, node, scope):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope.names.setdefault(node.name, "local")
            inner = Scope("function", f"{scope.qual}.{node.name}" if scope.qual else node.name, scope)
            self.scopes[node] = inner
            for d in node.decorator_list: self._bind_node(d, scope)
            a = node.args
            for x in a.defaults + [k for k in a.kw_defaults if k]: self._bind_node(x, scope)
            for arg in a.posonlyargs + a.args + a.kwonlyargs + ([a.vararg] if a.vararg else []) + ([a.kwarg] if a.kwarg else []):
                inner.names[arg.arg] = "local"
                if arg.annotation: self._bind_node(arg.annotation, scope)
            if node.returns: self._bind_node(node.returns, scope)
            for s in node.body: self._bind_node(s, inner)
            return
        if isinstance(node, ast.ClassDef):
            scope.names.setdefault(node.name, "local")
            inner = Scope("class", f"{scope.qual}.{node.name}" if scope.qual else node.name, scope)
            self.scopes[node] = inner
            for d in node.decorator_list + node.bases + [k.value for k in node.keywords]: self._bind_node(d, scope)
            for s in node.body: self._bind_node(s, inner)
            return
        if isinstance(node, ast.Lambda):
            a = node.args
            for arg in a.posonlyargs + a.args + a.kwonlyargs + ([a.vararg] if a.vararg else []) + ([a.kwarg] if a.kwarg else []):
                scope.names.setdefault(arg.arg, "local")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            if node.id not in scope.freed and node.id not in scope.nonlocals: scope.names.setdefault(node.id, "local")
        elif isinstance(node, ast.ExceptHandler) and node.name: scope.names.setdefault(node.name, "local")
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name: scope.names.setdefault(node.name, "local")
        elif isinstance(node, ast.MatchMapping) and node.rest: scope.names.setdefault(node.rest, "local")
        elif isinstance(node, ast.Global): scope.freed.update(node.names)
        elif isinstance(node, ast.Nonlocal): scope.nonlocals.update(node.names)
        elif isinstance(node, ast.Import):
            for al in node.names:
                if al.asname: scope.names[al.asname] = ("module", al.name)
                else: scope.names[al.name.split(".")[0]] = ("module", al.name.split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            mod = self.absolute(node)
            for al in node.names:
                bound = al.asname or al.name
                if f"{mod}.{al.name}" in self.known: scope.names[bound] = ("module", f"{mod}.{al.name}")
                else: scope.names[bound] = ("import", mod, al.name)
        for child in ast.iter_child_nodes(node): self._bind_node(child, scope)

    def absolute(self, node: ast.ImportFrom) -> str:
        if not node.level: return node.module or ""
        parts = self.name.split(".")
        if self.path.name != "__init__.py": parts = parts[:-1]
        parts = parts[: len(parts) - node.level + 1]
        return ".".join(parts + ([node.module] if node.module else []))

    # --- names to symbols
    def find(self, name: str, scope: Scope):
        """The scope that binds a name and the binding."""
        s, first = scope, True
        while s:
            if s.kind != "class" or first:
                if name in s.freed: s = self.top; first = True; continue
                if name in s.names: return s, s.names[name]
            s, first = s.parent, False
        return None, None

    def symbol(self, name: str, scope: Scope) -> str | None:
        s, b = self.find(name, scope)
        if s is None: return None
        if b == "local":
            if s.kind == "module": return f"{self.name}:{name}"
            if s.kind == "class": return f"{self.name}:{s.qual}.{name}"
            return self.local(s, name)
        if b[0] == "import": return f"{b[1]}:{b[2]}"
        return f"{b[1]}:"     # a module

    def local(self, s: Scope, name: str) -> str:
        # nested def/class inside a function keeps the dotted form too
        return f"{self.name}:{s.qual}({name})"

    def col(self, line: int, off: int) -> int:
        return len(self.bytes[line - 1][:off].decode())

    # --- second pass: occurrences
    def occurrences(self):
        out: list[Occ] = []
        self._walk(self.tree, self.top, out)
        return out

    def _tok(self, line, pattern, start=0):
        m = re.compile(pattern).search(self.lines[line - 1], start)
        return m

    def _walk(self, node, scope, out):
        for child in ast.iter_child_nodes(node): self._visit(child, scope, out)

    def _visit(self, node, scope, out):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            kw = "class" if isinstance(node, ast.ClassDef) else "def"
            m = self._tok(node.lineno, rf"\b{kw}\s+({re.escape(node.name)})\b", self.col(node.lineno, node.col_offset))
            out.append(Occ(node.lineno, m.start(1), node.name, self.symbol(node.name, scope), "def", node))
            inner = self.scopes[node]
            for d in node.decorator_list: self._visit(d, scope, out)
            if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant) and isinstance(node.body[0].value.value, str):
                self.docs.append((inner, node.body[0].value))
            if isinstance(node, ast.ClassDef):
                for b in node.bases + [k.value for k in node.keywords]: self._visit(b, scope, out)
            else:
                a = node.args
                for x in a.defaults + [k for k in a.kw_defaults if k]: self._visit(x, scope, out)
                for arg in a.posonlyargs + a.args + a.kwonlyargs + ([a.vararg] if a.vararg else []) + ([a.kwarg] if a.kwarg else []):
                    out.append(Occ(arg.lineno, self.col(arg.lineno, arg.col_offset), arg.arg, self.symbol(arg.arg, inner), "arg", arg))
                    if arg.annotation: self._visit(arg.annotation, scope, out)
                if node.returns: self._visit(node.returns, scope, out)
            for s in node.body: self._visit(s, inner, out)
            return
        if isinstance(node, ast.Lambda):
            a = node.args
            for arg in a.posonlyargs + a.args + a.kwonlyargs + ([a.vararg] if a.vararg else []) + ([a.kwarg] if a.kwarg else []):
                out.append(Occ(arg.lineno, self.col(arg.lineno, arg.col_offset), arg.arg, self.symbol(arg.arg, scope), "arg", arg))
        elif isinstance(node, ast.Name):
            out.append(Occ(node.lineno, self.col(node.lineno, node.col_offset), node.id, self.symbol(node.id, scope), "name", (node, scope)))
        elif isinstance(node, ast.Attribute):
            out.append(Occ(node.end_lineno, self.col(node.end_lineno, node.end_col_offset) - len(node.attr), node.attr, None, "attr", (node, scope)))
        elif isinstance(node, ast.Call):
            for k in node.keywords:
                if k.arg: out.append(Occ(k.lineno, self.col(k.lineno, k.col_offset), k.arg, None, "kw", (node, scope)))
            out.append(Occ(node.lineno, 0, "", None, "call", (node, scope)))
        elif isinstance(node, ast.ExceptHandler) and node.name:
            line = node.lineno
            while True:
                m = self._tok(line, rf"\bas\s+({node.name})\s*:")
                if m: break
                line += 1
            out.append(Occ(line, m.start(1), node.name, self.symbol(node.name, scope), "name", node))
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            out.append(Occ(node.end_lineno, self.col(node.end_lineno, node.end_col_offset) - len(node.name), node.name, self.symbol(node.name, scope), "name", node))
        elif isinstance(node, ast.MatchClass):
            for attr, pat in zip(node.kwd_attrs, node.kwd_patterns):
                line, col = pat.lineno, self.col(pat.lineno, pat.col_offset)
                ms = [m for m in re.finditer(rf"\b({attr})\s*=", self.lines[line - 1][:col])]
                if ms: out.append(Occ(line, ms[-1].start(1), attr, None, "matchattr", (node, scope)))
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            for n in node.names:
                m = self._tok(node.lineno, rf"\b{n}\b", self.col(node.lineno, node.col_offset))
                out.append(Occ(node.lineno, m.start(), n, self.symbol(n, scope if isinstance(node, ast.Global) else scope), "name", node))
        elif isinstance(node, ast.ImportFrom):
            out.append(Occ(node.lineno, 0, "", None, "importfrom", (node, scope)))
        elif isinstance(node, ast.Import):
            out.append(Occ(node.lineno, 0, "", None, "import", (node, scope)))
        self._walk(node, scope, out)

_LINE = re.compile(r"^([\w.]+):([\w.]*)(?:\((\w+)(?:@(\d+)(?:-(\d+))?)?\))?$")

@dataclass(frozen=True)
class Rename:
    module: str; qual: str; local: str | None; first: int; last: int; new: str; where: str
    @property
    def symbol(self): return f"{self.module}:{self.qual}({self.local})" if self.local else f"{self.module}:{self.qual}"
    @property
    def old(self): return self.local or self.qual.split(".")[-1]

def read_spec(path: Path):
    for n, raw in enumerate(path.read_text().split("\n"), 1):
        line = raw.split("#")[0].strip()
        if not line: continue
        parts = line.split()
        m = _LINE.match(parts[0]) if len(parts) == 2 else None
        if not m or not parts[1].isidentifier():
            print(f"{path.name}:{n}: not understood: {raw}"); continue
        yield Rename(m[1], m[2], m[3], int(m[4] or 0), int(m[5] or m[4] or 10**9), parts[1], f"{path.name}:{n}")
