"""Parts of kernels, for kernels of your own: schedules, systems, trajectories, rules, and what composes them.

``docs/extending.md`` adds one of each kind.

* A kernel is ``SplitKernel(model, splitting, method)`` and a method ``Hamiltonian(schedule, trajectory, adaptation,
  system)``; :func:`resolve_options` gives ``splitting`` and ``adaptation`` from a constructor's options, and
  :func:`with_options` puts these options into its signature.
* Schedules: :class:`Schedule`, :class:`ChosenSchedule`. Systems: :class:`Euclidean`, of a kinetic energy like
  :class:`Kinetic`. Trajectories: :class:`FixedLength`, :class:`Doubling` by a :class:`Rule`.
* Protocols, for parts of other kinds: :class:`Method`, :class:`System`, :class:`Trajectory`, and :class:`Criterion` and
  :class:`Span` of rules.
"""

from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.integrators.integrator import Kinetic, kinetic_change
from numpyro_split.kernels.hamiltonian import Hamiltonian
from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.kernels.method import Method
from numpyro_split.kernels.options import DEFAULTS, resolve_options
from numpyro_split.kernels.system import Euclidean, System
from numpyro_split.potential.position import flatten
from numpyro_split.trajectories.doubling import Doubling
from numpyro_split.trajectories.fixed_length import FixedLength
from split_common.fixed_length import LengthSettings
from split_common.options import with_options
from split_common.schedule import ChosenSchedule, Reversal, Schedule
from split_common.termination import Criterion, FixedRule, Rule, Span
from split_common.trajectory import Trajectory

__all__ = [
    "DEFAULTS",
    "ChosenSchedule",
    "Criterion",
    "Doubling",
    "Euclidean",
    "EuclideanKinetic",
    "FixedLength",
    "FixedRule",
    "Hamiltonian",
    "Kinetic",
    "LengthSettings",
    "Method",
    "Reversal",
    "Rule",
    "Schedule",
    "Span",
    "SplitKernel",
    "System",
    "Trajectory",
    "flatten",
    "kinetic_change",
    "resolve_options",
    "with_options",
]
