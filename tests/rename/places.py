import sys, json
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from scopes import *
from pathlib import Path
root = Path(sys.argv[1])
mods = modules(root)
out = {}
for n, p in mods.items():
    m = Module(n, p, mods)
    out[n] = [(o.line, o.col, o.name, o.kind) for o in m.occurrences()]
json.dump(out, open(Path(__file__).parent / "places.json", "w"))
