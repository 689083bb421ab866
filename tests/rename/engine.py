"""Resolve attributes and keyword arguments of a tree to the symbols that they stand for, by mypy's types."""
from __future__ import annotations
import ast, sys, time
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from scopes import *
from mypy import build, nodes, types as T
from mypy.modulefinder import BuildSource
from mypy.options import Options
from mypy.config_parser import parse_config_file

def run_mypy(mods: dict[str, Path], root: Path):
    o = Options()
    import os
    os.chdir(root)
    parse_config_file(o, lambda: None, "pyproject.toml", sys.stdout, sys.stderr)
    o.packages = []; o.modules = []
    o.python_executable = sys.executable
    o.export_types = True; o.preserve_asts = True; o.incremental = False; o.cache_dir = os.devnull
    o.mypy_path = [str(root / "plugins"), str(root)]
    o.check_untyped_defs = True; o.local_partial_types = False
    o.explicit_package_bases = True; o.namespace_packages = True
    o.show_traceback = True
    from mypy.modulefinder import SearchPaths
    srcs = [BuildSource(str(p), m, None) for m, p in mods.items()]
    t = time.time()
    r = build.build(srcs, o, alt_lib_path=None)
    print("mypy", round(time.time() - t), "s", len(r.errors), "lines of errors", flush=True)
    return r

def class_symbol(info: nodes.TypeInfo) -> str:
    """mod:Qual of a class"""
    mod = info.module_name
    full = info.fullname
    return f"{mod}:{full[len(mod)+1:]}"

def defining(info: nodes.TypeInfo, attr: str, ours) -> str | None:
    best = None
    for c in info.mro:
        if attr in c.names and ours(c.module_name): best = c
        elif attr in c.names and not ours(c.module_name) and c.fullname not in ("builtins.object",):
            return None if best is None else None
    return None if best is None else f"{class_symbol(best)}.{attr}"

def infos(t) -> list:
    t = T.get_proper_type(t)
    if isinstance(t, T.Instance): 
        if t.extra_attrs and t.extra_attrs.mod_name: return []
        return [t.type]
    if isinstance(t, T.UnionType): return [i for x in t.items for i in infos(x)]
    if isinstance(t, (T.TypeVarType,)): return infos(t.upper_bound)
    if isinstance(t, T.TupleType): return infos(t.partial_fallback)
    if isinstance(t, T.LiteralType): return infos(t.fallback)
    if isinstance(t, T.TypedDictType): return []
    if isinstance(t, T.TypeType): return infos(t.item)
    if isinstance(t, T.CallableType) and t.is_type_obj(): return infos(t.ret_type)
    if isinstance(t, T.Overloaded): return infos(t.items[0])
    return []

SKIP = {"node", "info", "fullname", "type", "unanalyzed_type", "names", "mro", "original_first_arg", "accept", "alias_defs",
        "imports", "plugin_deps", "future_import_flags", "is_stub", "symtable", "original_def", "def_or_infer_vars", "max_pos"}
FIELDS: dict = {}
def fields_of(n):
    c = type(n)
    if c not in FIELDS:
        out = []
        for a in dir(c):
            if a.startswith("_") or a in SKIP: continue
            try: v = getattr(n, a)
            except Exception: out.append(a); continue
            if callable(v) and not isinstance(v, nodes.Node): continue
            if isinstance(v, (bool, int, str)): continue
            out.append(a)
        FIELDS[c] = out
    return FIELDS[c]

def spans(tree, tmap):
    out = {}; seen = set(); stack = [tree]
    while stack:
        n = stack.pop()
        if isinstance(n, nodes.Node):
            if id(n) in seen or isinstance(n, (nodes.TypeInfo, nodes.Var)): continue
            if isinstance(n, nodes.MypyFile) and n is not tree: continue
            seen.add(id(n))
            if isinstance(n, nodes.Expression):
                t = tmap.get(n)
                if t is not None: out.setdefault((n.line, n.column, n.end_line, n.end_column), t)
            for a in fields_of(n):
                try: v = getattr(n, a)
                except Exception: continue
                if isinstance(v, (nodes.Node, list, tuple, dict)): stack.append(v)
        elif isinstance(n, (list, tuple)): stack.extend(x for x in n if isinstance(x, (nodes.Node, list, tuple)))
        elif isinstance(n, dict): stack.extend(x for x in n.values() if isinstance(x, (nodes.Node, list, tuple)))
    return out

class Engine:
    def __init__(self, root: Path, result=None):
        self.root = root
        self.mods = modules(root)
        r = result or run_mypy(self.mods, root)
        self.errors = r.errors
        self.files = r.files
        self.parsed = {n: Module(n, p, self.mods) for n, p in self.mods.items()}
        import json
        places = json.load(open(Path(__file__).parent / "places.json"))
        for m in self.parsed.values():
            m.occ = m.occurrences()
            exact = places[m.name]
            assert len(exact) == len(m.occ), m.name
            for o, (line, col, name, kind) in zip(m.occ, exact):
                assert (o.name, o.kind) == (name, kind), (m.name, o, line)
                o.line, o.col = line, col
        # expressions by file and span
        self.types = {}
        import gc; gc.disable()
        for n in self.mods:
            self.types[n] = spans(r.files[n], r.types) if n in r.files else {}
        self.resolve_all()

    def ours(self, mod): return mod in self.mods

    def follow(self, sym: str) -> str:
        """Through re-exports: mod:name -> where it is defined."""
        seen = set()
        while sym not in seen:
            seen.add(sym)
            mod, _, q = sym.partition(":")
            if mod not in self.parsed or not q or "(" in q: return sym
            head, dot, rest = q.partition(".")
            b = self.parsed[mod].top.names.get(head)
            if b is None or b == "local": return sym
            if b[0] == "module": return sym if dot else f"{b[1]}:"
            sym = f"{b[1]}:{b[2]}" + (f".{rest}" if dot else "")
        return sym

    def info(self, sym: str):
        mod, _, q = sym.partition(":")
        f = self.files.get(mod)
        if f is None: return None
        parts = q.split(".")
        t = f.names.get(parts[0])
        node = t.node if t else None
        for p in parts[1:]:
            if not isinstance(node, nodes.TypeInfo): return None
            t = node.names.get(p); node = t.node if t else None
        if isinstance(node, nodes.TypeAlias):
            i = infos(node.target); return i[0] if i else None
        return node if isinstance(node, nodes.TypeInfo) else None

    def canonical(self, sym: str) -> str:
        """An attribute's or method's symbol at the base-most class of ours that has it."""
        mod, _, q = sym.partition(":")
        if "(" in q:
            head = q.partition("(")[0]; rest = q[len(head):]
            return self.canonical(f"{mod}:{head}") + rest if False else sym
        cq, dot, a = q.rpartition(".")
        if not dot: return sym
        i = self.info(f"{mod}:{cq}")
        if i is None: return sym
        return defining(i, a, self.ours) or sym

    def type_of(self, m: Module, e: ast.expr):
        return self.types[m.name].get((e.lineno, e.col_offset, e.end_lineno, e.end_col_offset))

    def base_symbol(self, m, e, scope) -> str | None:
        """The global symbol (module `m:`, class, function) that an expression names, if it does."""
        if isinstance(e, ast.Name):
            s = m.symbol(e.id, scope)
            return self.follow(s) if s else None
        if isinstance(e, ast.Attribute):
            b = self.base_symbol(m, e.value, scope)
            if b is None: return None
            if b.endswith(":"):
                mod = b[:-1]
                if f"{mod}.{e.attr}" in self.mods and (mod not in self.parsed or e.attr not in self.parsed[mod].top.names): return f"{mod}.{e.attr}:"
                return self.follow(f"{mod}:{e.attr}")
            if self.info(b) is not None: return self.canonical(f"{b}.{e.attr}")
        return None

    def attr_symbols(self, m, node: ast.Attribute, scope) -> list[str]:
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "super":
            s = scope
            while s and s.kind != "class": s = s.parent
            if s and (i := self.info(f"{m.name}:{s.qual}")):
                d = defining(i, node.attr, self.ours)
                return [d] if d else []
        b = self.base_symbol(m, node.value, scope)
        if b is not None and b.endswith(":"):
            s = self.base_symbol(m, node, scope)
            return [s] if s else []
        return self.member(m, node.value, node.attr, scope)

    def member(self, m, value, attr, scope) -> list[str]:
        t = self.type_of(m, value)
        out = []
        if t is not None:
            for i in infos(t):
                d = defining(i, attr, self.ours)
                if d: out.append(d)
            if out: return sorted(set(out))
            if infos(t): return []
        b = self.base_symbol(m, value, scope)
        if b and (i := self.info(b)): 
            d = defining(i, attr, self.ours)
            if d: return [d]
        if isinstance(value, ast.Name) and value.id in ("self", "cls"):
            s = scope
            while s and s.kind != "class": s = s.parent
            if s and (i := self.info(f"{m.name}:{s.qual}")):
                d = defining(i, attr, self.ours)
                if d: return [d]
        return ["?"] if t is None or isinstance(T.get_proper_type(t), T.AnyType) else []

    def keyword_symbols(self, m, call: ast.Call, kw: str, scope) -> list[str]:
        f = call.func
        b = self.base_symbol(m, f, scope)
        if b in ("functools:partial", "contextlib:ExitStack.enter_context") and call.args:
            return self.params(m, call.args[0], kw, scope)
        if b in ("dataclasses:replace", "copy:replace") and call.args:
            return self.member(m, call.args[0], kw, scope)
        out = self.params(m, f, kw, scope)
        if (not out or out == ["?"]) and call.args and isinstance(call.args[0], (ast.Name, ast.Attribute)):
            inner = self.params(m, call.args[0], kw, scope)
            if inner and inner != ["?"]: return inner
        return out

    def params(self, m, f, kw, scope) -> list[str]:
        b = self.base_symbol(m, f, scope)
        if b and ":" in b and not b.endswith(":"):
            i = self.info(b)
            if i is not None: return self.ctor(i, kw)
            if b.split(":")[0] in self.mods:
                mod, q = b.split(":")
                if "(" not in q:
                    r = self.func_param(mod, q, kw)
                    if r: return r
        t = self.type_of(m, f)
        if t is not None:
            p = T.get_proper_type(t)
            cs = [p] if isinstance(p, T.CallableType) else list(p.items) if isinstance(p, T.Overloaded) else []
            if isinstance(p, T.UnionType): cs = [x for x in map(T.get_proper_type, p.items) if isinstance(x, T.CallableType)]
            out = []
            for c in cs:
                if c.is_type_obj():
                    for i in infos(c.ret_type): out += self.ctor(i, kw)
                elif c.definition is not None and isinstance(c.definition, (nodes.FuncDef, nodes.Decorator)):
                    d = c.definition.func if isinstance(c.definition, nodes.Decorator) else c.definition
                    if d.info and d.info.fullname:
                        s = defining(d.info, d.name, self.ours)
                        if s: out.append(f"{class_symbol(d.info)}.{d.name}({kw})")
                    elif (mod := self.mod_of(d.fullname)): out.append(f"{mod}:{d.fullname[len(mod)+1:]}({kw})")
            if out: return sorted(set(out))
            for i in infos(t):
                if self.ours(i.module_name) and "__call__" in i.names: out.append(f"{class_symbol(i)}.__call__({kw})")
            if out: return out
            if isinstance(p, T.AnyType): return ["?"]
        # a nested function
        if isinstance(f, ast.Name):
            s, bd = m.find(f.id, scope)
            if s is not None and bd == "local" and s.kind == "function":
                q = f"{s.qual}.{f.id}"
                if any(x.qual == q for x in m.scopes.values()): return [f"{m.name}:{q}({kw})"]
        if isinstance(f, ast.Attribute):
            return [f"{x}({kw})" if x != "?" else "?" for x in self.member(m, f.value, f.attr, scope)]
        return ["?"]

    def mod_of(self, full):
        parts = full.split(".")
        for i in range(len(parts) - 1, 0, -1):
            if ".".join(parts[:i]) in self.mods: return ".".join(parts[:i])
        return None

    def func_param(self, mod, q, kw):
        for s in self.parsed[mod].scopes.values():
            if s.kind == "function" and s.qual == q and kw in s.names: return [f"{mod}:{q}({kw})"]
        return []

    def ctor(self, i, kw) -> list[str]:
        for c in i.mro:
            if not self.ours(c.module_name): continue
            if "__init__" in c.names and isinstance(c.names["__init__"].node, (nodes.FuncDef, nodes.OverloadedFuncDef, nodes.Decorator)) and not c.names["__init__"].plugin_generated:
                return [f"{class_symbol(c)}.__init__({kw})"]
            if "__new__" in c.names and not c.names["__new__"].plugin_generated and c.tuple_type is None: return [f"{class_symbol(c)}.__new__({kw})"]
            if kw in c.names or c.names.get("__init__"):
                d = defining(i, kw, self.ours)
                return [d] if d else []
        d = defining(i, kw, self.ours)
        return [d] if d else []

    def resolve_all(self):
        for m in self.parsed.values():
            for o in m.occ:
                o.symbols = []
                if o.kind in ("def", "arg", "name"):
                    if o.symbol:
                        o.symbols = [self.canonical(self.follow(o.symbol))]
                elif o.kind == "attr":
                    o.symbols = self.attr_symbols(m, *o.node)
                elif o.kind == "kw":
                    o.symbols = self.keyword_symbols(m, o.node[0], o.name, o.node[1])
                elif o.kind == "matchattr":
                    b = self.base_symbol(m, o.node[0].cls, o.node[1])
                    i = self.info(b) if b else None
                    d = defining(i, o.name, self.ours) if i else None
                    o.symbols = [d] if d else ([] if i else ["?"])

