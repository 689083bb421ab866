"""Rename and move: applies `moves.txt` and `tables/*.txt` to a tree.

    python tests/rename/places.py .                    (with Python 3.12 or newer: exact places inside f-strings)
    OUT=../work-tree python tests/rename/apply.py      (with this project's Python and its mypy)

A row of a table is `module:qualified.name new`, or `module:function(local) new`, optionally for some lines only. Names
are resolved by scope and by mypy's types; strings, comments, docs and the planted bugs of `tests/mutations` follow. A
rename that would collide or be captured is dropped and said; so is what no type tells.
"""
import sys, re, ast, collections, os, subprocess, json
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from engine import *
OUT = Path(os.environ["OUT"])  # a work tree of the same commit, which is changed
ROOT_DIR = ROOT
E = Engine(ROOT_DIR)
SPECS = sorted((Path(__file__).parent / "tables").glob("*.txt"))
MOVES = {}
for l in open(Path(__file__).parent / "moves.txt"):
    l = l.split("#")[0].split()
    if l: MOVES["sterna." + l[0]] = "sterna." + l[1]
TEST_MOVES = {}
def new_module(m: str) -> str:
    best = max((o for o in MOVES if m == o or m.startswith(o + ".")), key=len, default=None)
    return m if best is None else MOVES[best] + m[len(best):]

# --- the table
table = collections.defaultdict(list); where = {}
def add(sym, r):
    for f, l, n, w in table[sym]:
        if (f, l) == (r.first, r.last):
            if n != r.new: print(f"TWICE {sym}: {n} ({w}) and {r.new} ({r.where}); the first stays")
            return
    table[sym].append((r.first, r.last, r.new, r.where))
for p in SPECS:
    for r in read_spec(p):
        sym = r.symbol
        if r.local is None:
            fq, _, last = r.qual.rpartition(".")
            if fq and r.module in E.parsed and (sc := next((s for s in E.parsed[r.module].scopes.values() if s.qual == fq and s.kind == "function"), None)) is not None and last in sc.names:
                add(f"{r.module}:{fq}({last})", r); continue
            c = E.canonical(E.follow(sym))
            if "." in r.qual:
                i = E.info(f"{r.module}:{r.qual.rpartition('.')[0]}")
                if i is None and r.module in E.mods: print("NOCLASS", r.where, sym)
            sym = c
        if r.module not in E.mods: print("NOMODULE", r.where); continue
        if r.old == r.new: continue
        add(sym, r)
print(len(table), "symbols")
OVERRIDE = {}

def renamed(sym: str, line: int) -> str | None:
    rows = table.get(sym)
    if not rows: return None
    exact = [n for f, l, n, w in rows if f and f <= line <= l]
    if exact: return exact[0]
    return next((n for f, l, n, w in rows if not f), None)

DROPPED = set()
def target(m, o) -> str | None:
    """The new name of an occurrence, or None."""
    news = []
    if o.name == "property" and o.kind == "name": return None
    for s in o.symbols:
        if s == "?": continue
        if s in DROPPED: news.append(None); continue
        if s.endswith(":"):       # a module bound by its base name
            mod = s[:-1]
            if mod in E.mods and o.name == mod.split(".")[-1]:
                b = new_module(mod).split(".")[-1]
                news.append(b if b != o.name else None)
            else: news.append(None)
            continue
        q = s.partition(":")[2]
        base = re.search(r"\((\w+)\)$", q)[1] if "(" in q else q.split(".")[-1]
        if base != o.name: news.append(None); continue   # an alias
        n = renamed(s, o.line)
        news.append(n)
    if not news: return None
    u = set(news)
    if len(u) > 1:
        print(f"MIXED {E.mods[m.name].relative_to(ROOT_DIR)}:{o.line} .{o.name}: {list(zip(o.symbols, news))}")
        u.discard(None)
    n = sorted(u, key=str)[0]
    return n

UNRESOLVED = collections.defaultdict(list)
OLD = collections.defaultdict(set)
for s, rows in table.items():
    q = s.partition(":")[2]
    if "(" in q: continue
    for f, l, n, w in rows: OLD[q.split(".")[-1]].add(n)
OLDKW = collections.defaultdict(set)
for s, rows in table.items():
    m_ = re.search(r"\((\w+)\)$", s)
    if m_:
        for f, l, n, w in rows: OLDKW[m_[1]].add(n)

def imports_of(m, node, scope):
    """New text of a from-import, or None."""
    mod = m.absolute(node)
    groups = collections.OrderedDict(); changed = False
    for al in node.names:
        if al.name == "*": return None
        sub = f"{mod}.{al.name}"
        if sub in E.mods and not (mod in E.parsed and al.name in E.parsed[mod].top.names and E.parsed[mod].top.names[al.name] == "local"):
            nm = new_module(sub); src, _, nn = nm.rpartition(".")
            asn = al.asname
            if asn is None and f"{sub}:" in DROPPED and nn != al.name: asn = al.name
        else:
            src = new_module(mod) if mod in E.mods else mod
            f = E.follow(f"{mod}:{al.name}")
            if mod in E.mods:
                fq = f.partition(":")[2]
                n = renamed(f, 0) if fq == al.name and f not in DROPPED else None
                if n is None and f.endswith(":") and f[:-1] in E.mods:
                    n = new_module(f[:-1]).split(".")[-1]
                nn = n or al.name
            else: nn = al.name
            asn = al.asname
            if asn == nn: asn = None
            if asn is None and nn == al.name and al.asname: asn = None if al.asname == nn else al.asname
        if al.asname and al.asname == al.name: asn = nn    # explicit re-export
        if src != mod or nn != al.name or asn != al.asname: changed = True
        groups.setdefault(src, []).append(nn + (f" as {asn}" if asn else ""))
    if not changed and not (node.level): return None
    if not changed: return None
    seg = m.lines[node.lineno - 1: node.end_lineno]
    comments = [c[1] for l in seg for c in [re.search(r"(#.*)$", l)] if c]
    pad = seg[0][: node.col_offset]
    tail = ("  " + " ".join(comments)) if comments else ""
    return ("\n" + pad).join(f"from {s} import {', '.join(ns)}" for s, ns in groups.items()) + tail

def edits_of(m):
    edits = {}   # (line, col) -> (old, new)
    blocks = []
    for o in m.occ:
        if o.kind == "importfrom":
            t = imports_of(m, *o.node)
            n = o.node[0]
            if t is not None: blocks.append((n.lineno, n.col_offset, n.end_lineno, n.end_col_offset, t))
            continue
        if o.kind in ("import", "call"): continue
        new = target(m, o)
        if new is None and o.symbols == ["?"] and (o.name in OLD or (o.kind == "kw" and o.name in OLDKW)):
            UNRESOLVED[f"{o.kind} {o.name}"].append(f"{E.mods[m.name].relative_to(ROOT_DIR)}:{o.line}")
        if new and new != o.name:
            assert m.lines[o.line - 1][o.col:o.col + len(o.name)] == o.name, (m.name, o)
            edits[(o.line, o.col)] = (o.name, new)
    return edits, blocks

def apply_edits(m, edits, blocks):
    lines = list(m.lines)
    blocked = set()
    for (a, ac, b, bc, t) in blocks:
        for l in range(a, b + 1): blocked.add(l)
    per = collections.defaultdict(list)
    for (l, c), (old, new) in edits.items():
        if l not in blocked: per[l].append((c, old, new))
    for l, es in per.items():
        s = lines[l - 1]
        for c, old, new in sorted(es, reverse=True): s = s[:c] + new + s[c + len(old):]
        lines[l - 1] = s
    for (a, ac, b, bc, t) in sorted(blocks, reverse=True):
        pad = m.lines[a - 1][:ac]
        rest = m.lines[b - 1][m.col(b, bc):]
        rest = "" if "#" in rest else rest
        lines[a - 1:b] = (pad + t + rest).split("\n")
    return lines

# --- fix point: a rename that would collide or be captured is dropped, and said
def check_scopes(m, edits):
    """Names after the renames, scope by scope: two symbols of a scope with one name; a name that means another thing."""
    bad = []
    new_of = {}
    for o in m.occ:
        if o.kind in ("name", "arg", "def") and o.symbol:
            new_of[id(o)] = target(m, o) or o.name
    # bindings after
    binds = collections.defaultdict(lambda: collections.defaultdict(set))   # scope -> newname -> {old symbol}
    for sc in {id(s): s for s in m.scopes.values()}.values():
        for name, b in sc.names.items():
            if b == "local":
                s = m.symbol(name, sc) if sc.kind != "function" else m.local(sc, name)
                c = E.canonical(E.follow(s))
                rows = table.get(c)
                news = {n for f, l, n, w in rows} if rows and c not in DROPPED and (c.partition(":")[2].split(".")[-1] == name or "(" in c) else {name}
                if rows and c not in DROPPED and all(f for f, l, n, w in rows): news = news | ({name} if any(o.symbol == s and renamed(c, o.line) is None for o in m.occ) else set())
            elif b[0] == "import":
                c = E.follow(f"{b[1]}:{b[2]}")
                q = c.partition(":")[2]
                n = renamed(c, 0) if b[1] in E.mods and q == b[2] == name and c not in DROPPED else None
                if c.endswith(":") and c[:-1] in E.mods and name == c[:-1].split(".")[-1] and c not in DROPPED: n = new_module(c[:-1]).split(".")[-1]
                news = {n or name}
            else:
                c = f"{b[1]}:"
                news = {new_module(b[1]).split(".")[-1] if b[1] in E.mods and name == b[1].split(".")[-1] and c not in DROPPED else name}
            for n in news: binds[id(sc)][n].add(c)
    for sc in {id(s): s for s in m.scopes.values()}.values():
        for n, ss in binds[id(sc)].items():
            if len(ss) > 1:
                cand = [s for s in ss if (s.endswith(":") and s not in DROPPED and new_module(s[:-1]).split(".")[-1] == n and s[:-1].split(".")[-1] != n) or any(x[2] == n for x in table.get(s, []))]
                # deliberate: two line-ranged locals merged into one name
                ranged = all("(" in s and sc.kind == "function" for s in ss) and any(x[0] for s in ss for x in table.get(s, []))
                if ranged or not cand: continue
                bad.append((cand, f"{m.name}:{sc.qual or '<module>'}: {n} is {sorted(ss)}"))
    # capture
    for o in m.occ:
        if o.kind == "name" and isinstance(o.node, tuple) and o.symbol:
            n = new_of[id(o)]
            want = E.canonical(E.follow(o.symbol))
            s, first = o.node[1], True
            while s is not None:
                if (s.kind != "class" or first) and n in binds[id(s)]:
                    got = binds[id(s)][n]
                    if want not in got: 
                        cand = [g for g in got if any(x[2] == n for x in table.get(g, []))] + ([want] if table.get(want) else [])
                        bad.append((cand[:1] or [want], f"{E.mods[m.name].relative_to(ROOT_DIR)}:{o.line}: {o.name}->{n} would be {sorted(got)} not {want}"))
                    break
                s, first = s.parent, False
    return bad

for round_ in range(6):
    bad = [b for m in E.parsed.values() for b in check_scopes(m, None)]
    new = set()
    for cand, msg in bad:
        c = cand[0] if cand else None
        # prefer to drop a local over a global, a module binding last
        loc = [x for x in cand if "(" in x] or cand
        for x in loc[:1]:
            if x not in DROPPED: new.add(x); print("DROP", x, table.get(x, [("","","","")])[0][2:], "|", msg)
        if not loc: print("CONFLICT", msg)
    if not new: break
    DROPPED |= new
print(len(DROPPED), "dropped")

# --- strings and prose
# public names that are unique in the tree, for backticks
by_old = collections.defaultdict(set)
for s, rows in table.items():
    mod, _, q = s.partition(":")
    if mod.startswith("sterna") and "(" not in q and s not in DROPPED and not q.split(".")[-1].startswith("__"):
        by_old[q.split(".")[-1]].update(n for _, _, n, _ in rows)
defs = collections.Counter()
for m in E.parsed.values():
    if not m.name.startswith("sterna"): continue
    for sc in {id(s): s for s in m.scopes.values()}.values():
        if sc.kind in ("module", "class"):
            for n, b in sc.names.items():
                if b == "local":
                    c = E.canonical(f"{m.name}:{sc.qual + '.' if sc.qual else ''}{n}")
                    if c not in table or c in DROPPED: defs[n] += 1
PROSE = {}
for old, ns in by_old.items():
    if len(ns) == 1 and (re.search(r"[a-z][A-Z]|_|^[A-Z][a-z]+$", old)) and not defs[old]: PROSE[old] = next(iter(ns))
print(len(PROSE), "names in prose")
MODPATH = {}
for mod, p in E.mods.items():
    if mod.startswith("sterna"):
        MODPATH[mod.replace(".", "/")] = new_module(mod).replace(".", "/")

def dotted(mt):
    t = mt[0]; parts = t.split(".")
    for i in range(len(parts), 0, -1):
        mod = ".".join(parts[:i])
        if mod in E.mods or mod in MOVES:
            rest = parts[i:]
            if rest:
                sym = f"{mod}:{rest[0]}"
                n = renamed(E.follow(sym), 0) if mod in E.mods else None
                if E.follow(sym) in DROPPED: n = None
                if n: rest[0] = n
                if len(rest) > 1:
                    n = renamed(E.canonical(f"{mod}:{parts[i]}.{parts[i+1]}"), 0)
                    if n: rest[1] = n
            return ".".join([new_module(mod), *rest])
    return t
_DOTTED = re.compile(r"\bsterna(?:\.[A-Za-z_]\w*)+")
_PATH = re.compile(r"(?<![\w./-])(plugins/)?(sterna/)?([a-z_]+(?:/[a-z_0-9]+)*)(\.py|/)(?![\w])")
TOP = {m.split(".")[1] for m in E.mods if m.startswith("sterna.")}
def path(mt):
    plug, st, body, end = mt[1] or "", mt[2] or "", mt[3], mt[4]
    if body.split("/")[0] not in TOP: return mt[0]
    key = "sterna." + body.replace("/", ".")
    if end == ".py" and key not in E.mods: return mt[0]
    if end == "/" and (key not in E.mods or E.mods[key].name != "__init__.py" and not (E.mods[key].parent / "x").parent.is_dir()): return mt[0]
    if end == "/" and E.mods[key].name != "__init__.py": return mt[0]
    if end == "/" and not st and mt.string[mt.end():mt.end()+1].isalpha(): return mt[0]
    if end == "/" and not st and not plug and mt.string[max(0, mt.start()-1):mt.start()] != "`": return mt[0]
    return plug + st + new_module(key)[7:].replace(".", "/") + end
def prose(t, md=False):
    t = _DOTTED.sub(dotted, t)
    t = _PATH.sub(path, t)
    def tick(mt):
        if "{" in mt[1]: return mt[0]
        return "`" + re.sub(r"(?<![\w.'\"/-])[A-Za-z_]\w*(?![\w'\"/-])|(?<=\w\.)[A-Za-z_]\w*(?![\w'\"])", lambda x: PROSE.get(x[0], x[0]) if "_" in x[0] or re.match(r"[A-Z][a-z]", x[0]) or mt[0] in (f"`{x[0]}`", f"`{x[0]}()`") and len(x[0]) > 7 else x[0], mt[1]) + "`"
    return re.sub(r"`([^`\n]+)`", tick, t)

def doc_edits(m, lines_new, edits, blocks):
    return lines_new

def new_text(m):
    edits, blocks = edits_of(m)
    # strings
    strings = []
    docs = set()
    for sc, c in m.docs: docs.add(id(c))
    if m.tree.body and isinstance(m.tree.body[0], ast.Expr) and isinstance(m.tree.body[0].value, ast.Constant): docs.add(id(m.tree.body[0].value))
    # setattr-like strings, __all__, codec fields
    for o in m.occ:
        if o.kind != "call": continue
        call, scope = o.node
        fn = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
        if fn in ("setattr", "getattr", "hasattr", "delattr", "object", "attrgetter", "methodcaller", "wraps") and len(call.args) >= 2 and isinstance(call.args[1], ast.Constant) and isinstance(call.args[1].value, str):
            s = call.args[1].value
            b = E.base_symbol(m, call.args[0], scope)
            if b and b.endswith(":"): syms = [E.follow(f"{b[:-1]}:{s}")]
            else: syms = E.member(m, call.args[0], s, scope)
            for sy in syms:
                n = renamed(sy, 0) if sy != "?" and sy not in DROPPED else None
                if sy == "?" and s in OLD: UNRESOLVED[f"setattr {s}"].append(f"{E.mods[m.name].relative_to(ROOT_DIR)}:{call.lineno}")
                if n: string_edit(m, call.args[1], s, n, edits)
        b = E.base_symbol(m, call.func, scope) if fn in ("Record", "row", "Field") else None
        if b == "sterna.json_record:Record" and call.args:
            cls = E.base_symbol(m, call.args[0], scope)
            if cls and E.info(cls):
                for f in ast.walk(call):
                    if isinstance(f, ast.Call) and isinstance(f.func, ast.Name) and f.func.id == "Field":
                        attr = next((k.value for k in f.keywords if k.arg == "attribute"), None)
                        name = attr.value if attr is not None else f.args[0].value
                        n = renamed(E.canonical(f"{cls}.{name}"), 0)
                        if n and E.canonical(f"{cls}.{name}") not in DROPPED:
                            if attr is not None: string_edit(m, attr, name, n, edits)
                            else: edits[(f.end_lineno, m.col(f.end_lineno, f.end_col_offset) - 1)] = ("", f', attribute="{n}"')
                for k in call.keywords:
                    if k.arg == "carried" and isinstance(k.value, ast.Constant):
                        n = renamed(E.canonical(f"{cls}.{k.value.value}"), 0)
                        if n: string_edit(m, k.value, k.value.value, n, edits)
                    if k.arg == "inlined" and isinstance(k.value, ast.Dict):
                        for kk in k.value.keys:
                            n = renamed(E.canonical(f"{cls}.{kk.value}"), 0)
                            if n: string_edit(m, kk, kk.value, n, edits)
        if b == "sterna.json_record:row" and call.args:
            for k in call.keywords:
                if k.arg:
                    cls = E.base_symbol(m, call.args[0], scope)
                    if cls:
                        sy = E.canonical(f"{cls}.{k.arg}")
                        n = renamed(sy, 0) if sy not in DROPPED else None
                        if n: edits[(k.lineno, m.col(k.lineno, k.col_offset))] = (k.arg, n)
    for n in m.tree.body:
        if isinstance(n, (ast.Assign, ast.AnnAssign)) and isinstance(n.value, (ast.List, ast.Tuple)):
            t = n.targets[0] if isinstance(n, ast.Assign) else n.target
            if isinstance(t, ast.Name) and t.id == "__all__":
                for c in n.value.elts:
                    sy = E.follow(f"{m.name}:{c.value}")
                    nn = renamed(sy, 0) if sy not in DROPPED else None
                    if sy.endswith(":"): nn = new_module(sy[:-1]).split(".")[-1]
                    if nn and nn != c.value: string_edit(m, c, c.value, nn, edits)
    # docstrings of functions: Args names and backticks
    for sc, c in m.docs:
        if sc.kind != "function": continue
        ren = {}
        for name in sc.names:
            sy = m.local(sc, name)
            n = renamed(sy, c.lineno) if sy not in DROPPED else None
            if n: ren[name] = n
        cls = sc.parent if sc.parent and sc.parent.kind == "class" else None
        if not ren: continue
        for ln in range(c.lineno, c.end_lineno + 1):
            l = m.lines[ln - 1]
            mt = re.match(r"(\s+)(\w+): ", l)
            if mt and mt[2] in ren and ln > c.lineno: edits[(ln, mt.start(2))] = (mt[2], ren[mt[2]])
            for b in re.finditer(r"`([^`]+)`", l):
                for x in re.finditer(r"(?<![\w.'\"])[A-Za-z_]\w*(?![\w'\"])", b[1]):
                    if x[0] in ren: edits[(ln, b.start(1) + x.start())] = (x[0], ren[x[0]])
    # docstrings of classes: Attributes
    for node, sc in m.scopes.items():
        if isinstance(node, ast.ClassDef) and node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant) and isinstance(node.body[0].value.value, str):
            c = node.body[0].value
            i = E.info(f"{m.name}:{sc.qual}")
            for ln in range(c.lineno, c.end_lineno + 1):
                mt = re.match(r"(\s+)(\w+): ", m.lines[ln - 1])
                if mt and ln > c.lineno:
                    sy = (defining(i, mt[2], E.ours) if i else None) or f"{m.name}:{sc.qual}.{mt[2]}"
                    n = renamed(sy, ln) if sy not in DROPPED else None
                    if not n: n = renamed(f"{m.name}:{sc.qual}.__init__({mt[2]})", ln)
                    if n: edits[(ln, mt.start(2))] = (mt[2], n)
    lines = apply_edits(m, edits, blocks)
    return lines

def string_edit(m, const, old, new, edits):
    l = m.lines[const.lineno - 1]; c = m.col(const.lineno, const.col_offset)
    at = l.find(old, c)
    if at < 0 or const.lineno != const.end_lineno: print("STRING", m.name, const.lineno, old, new); return
    edits[(const.lineno, at)] = (old, new)

_IN_STRING_IMPORT = re.compile(r"from (sterna(?:\.\w+)*) import ([\w, ]+)")
def text_pass(text):
    """Dotted names, paths and backticks in what isn't code; in code only strings and comments have them."""
    return text

import tokenize, io
def strings_pass(text, m):
    """Dotted names, paths, backticks in comments and strings."""
    out = []; lines = text.split("\n")
    try: toks = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except Exception as e: print("TOKENIZE", m.name, e); return text
    for t in reversed(toks):
        if t.type not in (tokenize.STRING, tokenize.COMMENT): continue
        s = t.string
        n = s
        def imp(mt):
            mod = mt[1]
            names = []
            srcs = collections.OrderedDict()
            for x in mt[2].split(","):
                x = x.strip()
                if not x: continue
                a, _, b = x.partition(" as ")
                if f"{mod}.{a}" in E.mods:
                    nm = new_module(f"{mod}.{a}"); src, _, nn = nm.rpartition("."); 
                    if nn != a and not b: b = a
                else:
                    f = E.follow(f"{mod}:{a}"); nn = renamed(f, 0) if f not in DROPPED else None
                    src = mod   # the dotted pass moves it
                    if nn and not b: PENDING.append((a, nn))
                    nn = nn or a
                srcs.setdefault(src, []).append(nn + (f" as {b}" if b else ""))
            return "; ".join(f"from {s_} import {', '.join(v)}" for s_, v in srcs.items())
        PENDING = []
        if t.type == tokenize.STRING and "import" in s: n = _IN_STRING_IMPORT.sub(imp, n)
        for a, nn in PENDING: n = re.sub(rf"(?<![\w.'\"]){a}(?!\w)", nn, n)
        n = prose(n)
        if n == s: continue
        (l0, c0), (l1, c1) = t.start, t.end
        seg = lines[l0 - 1:l1]
        seg[-1:] = [seg[-1]] 
        first, last = lines[l0 - 1][:c0], lines[l1 - 1][c1:]
        lines[l0 - 1:l1] = (first + n + last).split("\n")
    return "\n".join(lines)

def mutation_pass(m, text_by_old):
    pass

NEW = {}
EDITS = {}
for m in E.parsed.values():
    lines = new_text(m)
    t = strings_pass("\n".join(lines), m)
    NEW[m.name] = t

# mutations: fragments of old sources
def fragment_map(rel, old):
    mod = "sterna." + rel[:-3].replace("/", ".")
    if mod.endswith(".__init__"): mod = mod[:-9]
    m = E.parsed.get(mod)
    if m is None: return None
    k = m.text.find(old)
    if k < 0: return None
    l0 = m.text[:k].count("\n"); l1 = l0 + old.count("\n")
    edits, blocks = edits_of(m)
    pre = m.text[:k]; c0 = len(pre) - (pre.rfind("\n") + 1)
    starts = []
    es = []
    pairs = {}
    for (l, c), (o, n) in edits.items():
        off = sum(len(x) + 1 for x in m.lines[:l - 1]) + c
        pairs.setdefault(o, set()).add(n) if l0 - 12 <= l - 1 <= l1 + 12 else None
        if k <= off and off + len(o) <= k + len(old): es.append((off - k, o, n))
    s = old
    local = {}
    for at, o, n in sorted(es, reverse=True): s = s[:at] + n + s[at + len(o):]; local[o] = n
    for o, ns in pairs.items():
        if o not in local and len(ns) == 1: local[o] = next(iter(ns))
    return s, local

MUT = collections.defaultdict(list)
for m in E.parsed.values():
    if not m.name.startswith("tests.mutations"): continue
    partial_file = {}
    for n in ast.walk(m.tree):
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) and isinstance(n.value.func, ast.Name) and n.value.func.id == "partial":
            for k in n.value.keywords:
                if k.arg == "file" and isinstance(k.value, ast.Constant): partial_file[n.targets[0].id] = k.value.value
    for n in ast.walk(m.tree):
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name):
            kw = {k.arg: k.value for k in n.keywords}
            if "old" in kw and "new" in kw:
                f = ast.literal_eval(kw["file"]) if "file" in kw else partial_file.get(n.func.id)
                try: old, new = ast.literal_eval(kw["old"]), ast.literal_eval(kw["new"])
                except ValueError: print("MUTATION", m.name, n.lineno); continue
                r = fragment_map(f, old) if f else None
                if r is None: print("MUTATION not found", m.name, n.lineno, f, old[:60]); continue
                no, local = r
                nn = re.sub(r"[A-Za-z_]\w*", lambda x: local.get(x[0], x[0]), new)
                MUT[m.name].append((kw["old"], old, no)); MUT[m.name].append((kw["new"], new, nn))
def lit(s):
    if "\n" in s: return "(" + " ".join(json.dumps(x, ensure_ascii=False) for x in s.splitlines(True)) + ")"
    return json.dumps(s, ensure_ascii=False)
for name, rows in MUT.items():
    m = E.parsed[name]; lines = list(m.lines)
    for node, old, new in sorted(rows, key=lambda r: (r[0].lineno, r[0].col_offset), reverse=True):
        if old == new: continue
        a, b = node.lineno, node.end_lineno
        pre, post = lines[a - 1][:m.col(a, node.col_offset)], lines[b - 1][m.col(b, node.end_col_offset):]
        lines[a - 1:b] = [pre + lit(new) + post]
    # the rest by strings_pass (paths, dotted); names of the module itself aren't renamed
    mm = Module.__new__(Module)
    NEW[name] = strings_pass("\n".join(lines), m)

# --- write
if OUT.exists():
    base = OUT
    for mod, p in E.mods.items():
        rel = p.relative_to(ROOT_DIR)
        nm = new_module(mod) if mod.startswith("sterna") and not mod.startswith("sterna_plugin") else mod
        if mod.startswith("sterna.") or mod == "sterna":
            parts = nm.split(".")
            nrel = Path("plugins", *parts, "__init__.py") if p.name == "__init__.py" else Path("plugins", *parts).with_suffix(".py")
        else: nrel = rel
        if nrel != rel:
            (base / nrel).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", str(rel), str(nrel)], cwd=base, check=True) if (base / rel).exists() else None
        (base / nrel).write_text(NEW[mod])
    for d in sorted({x.parent for x in (base / "plugins/sterna").rglob("*.py")}):
        if not (d / "__init__.py").exists(): (d / "__init__.py").write_text(""); print("new package", d.relative_to(base))
    for p in [*base.glob("*.md"), *(base / "docs").rglob("*.md"), *base.glob("*.toml"), *(base / "bench").rglob("*.md"), *base.glob("*.yml"), *base.glob(".ci/*"), *(base/"tests").rglob("*.toml")]:
        if p.is_file() and p.name != "CHANGELOG.md":
            t = p.read_text(); n = prose(t)
            if n != t: p.write_text(n)
print("UNRESOLVED")
for k, v in sorted(UNRESOLVED.items()): print("  ", k, len(v), sorted(OLD.get(k.split()[1], OLDKW.get(k.split()[1], [])))[:4], v[:6])
if OUT.exists():
    tracked = subprocess.run(["git", "ls-files", "plugins/sterna"], cwd=OUT, capture_output=True, text=True, check=True).stdout.split("\n")
    for t in tracked:
        if t and not t.endswith(".py"):
            d = "sterna." + ".".join(Path(t).parent.parts[2:]) if len(Path(t).parts) > 3 else "sterna"
            nd = Path("plugins", *new_module(d).split("."))
            if nd != Path(t).parent and d != "sterna":
                (OUT / nd).mkdir(parents=True, exist_ok=True)
                subprocess.run(["git", "mv", t, str(nd / Path(t).name)], cwd=OUT, check=True); print("moved", t, nd)
    print("END2")
