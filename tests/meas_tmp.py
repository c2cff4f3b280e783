import importlib
import sys
import time

from tests.simulation.planting import planted

mod, run_mod, n, budget = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
only = sys.argv[5:]
bugs = importlib.import_module(mod).PLANTED
run = importlib.import_module(run_mod).run
for bug in bugs:
    if only and not any(o in bug.name for o in only):
        continue
    t = time.process_time()
    with planted(bug):
        for s in range(n):
            if time.process_time() - t > budget:
                print("NOT FOUND in", s, "|", bug.name, flush=True)
                break
            try:
                run(s, bug.about)
            except Exception as p:
                print(
                    "|",
                    bug.name,
                    "|",
                    bug.about,
                    "|",
                    s + 1,
                    "| %.1f |" % (time.process_time() - t),
                    type(p).__name__,
                    str(p)[-220:].replace("\n", " "),
                    flush=True,
                )
                break
        else:
            print("NOT FOUND |", bug.name, flush=True)
