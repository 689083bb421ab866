"""Break lines of prose that are longer than 120 columns, and go on in the paragraph's next line where there is one."""
import sys, re, tokenize, io
from pathlib import Path
for name in sys.argv[1:]:
    p = Path(name); text = p.read_text(); lines = text.split("\n")
    if not any(len(l) > 120 for l in lines): continue
    prose = set()
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type == tokenize.COMMENT and lines[t.start[0]-1].lstrip().startswith("#"): prose.add(t.start[0])
        if t.type == tokenize.STRING and re.match(r'[rR]?"""', t.string) and lines[t.start[0]-1][:t.start[1]].strip() == "": prose.update(range(t.start[0], t.end[0]+1))
    i = 0
    while i < len(lines):
        l = lines[i]
        if len(l) > 120 and (i + 1) in prose:
            m = re.match(r"(\s*(?:# ?)?)(\s*)", l); pad = m[1] + m[2]
            extra = "" 
            if re.match(r"\s*\w+: ", l) and not l.lstrip().startswith(('"', "#")): extra = "    "
            closing = l.rstrip().endswith('"""')
            cut = l.rfind(" ", 0, 121)
            if cut <= len(pad): i += 1; continue
            rest = l[cut+1:]
            lines[i] = l[:cut]
            if l.strip().startswith('"""'): pad = re.match(r"\s*", l)[0]
            nxt = lines[i+1] if i + 1 < len(lines) else ""
            if not closing and (i + 2) in prose and nxt.strip() not in ("", '"""', "#") and re.match(r"\s*(?:# ?)?\s*", nxt)[0].rstrip() == (pad+extra).rstrip() and len(re.match(r"\s*",nxt)[0]) == len(re.match(r"\s*",pad+extra)[0]) and not re.match(r"\s*(# )?(\w+: |\* |- )", nxt):
                body = nxt.strip().removeprefix("# ") if pad.strip() == "#" else nxt.strip()
                lines[i+1] = pad + extra + rest + " " + body
                prose.add(i + 2)
            else:
                lines.insert(i + 1, pad + extra + rest)
                prose = {x if x <= i + 1 else x + 1 for x in prose} | {i + 2}
        i += 1
    p.write_text("\n".join(lines))
