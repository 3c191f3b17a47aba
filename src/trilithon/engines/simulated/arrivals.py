"""Defines how irregularly records come to a source, by one number for both modes.

The squared coefficient of variation c² of the time between two records: 0 is a steady beat, 1 is a
Poisson stream (exponential gaps), anything else has lognormal gaps. Lognormal is what measured web
requests are: "Modeling World-Wide Web request traffic" (SPIE Multimedia Computing and Networking,
1997) finds that they are not Poisson, nor nearly so when more users come together, and that gaps
are lognormal with a shape parameter of 1.0 in each of three data sets.

Single records draw the gaps. Flows put c² into the formula for waiting, which speaks of what
happens within a step, and draw how many records come in each step: over a long time the number of
records in t seconds has the variance c²·rate·t, as that of any renewal process.
"""

import math
from typing import Final

EVEN_CV2: Final = 0.0
POISSON_CV2: Final = 1.0


def lognormal_cv2(shape: float) -> float:
    """c² of lognormal gaps with a shape parameter σ (the deviation of the logarithm): e^σ² − 1."""
    return math.expm1(shape**2)
