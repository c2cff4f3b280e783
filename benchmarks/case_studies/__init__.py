"""What the case studies hold on Busway and on Apache Kafka, in turns. They are in the repository and not in the package, so they are
found from here."""

import sys

from tools.jars import ROOT

sys.path.insert(0, str(ROOT / "examples" / "case_studies"))
