"""Running stages: one run as a pure function, many runs as one program."""

from jaxarch.running.devices import use_compilation_cache as use_compilation_cache
from jaxarch.running.devices import use_cpu_cores as use_cpu_cores
from jaxarch.running.evaluation import evaluate as evaluate
from jaxarch.running.memory import ProgramMemory as ProgramMemory
from jaxarch.running.options import EarlyStopping as EarlyStopping
from jaxarch.running.options import FitOptions as FitOptions
from jaxarch.running.options import Outset as Outset
from jaxarch.running.options import Progress as Progress
from jaxarch.running.options import StageReport as StageReport
from jaxarch.running.partition import fully_sharded as fully_sharded
from jaxarch.running.runs import Report as Report
from jaxarch.running.runs import compare as compare
from jaxarch.running.runs import needed_memory as needed_memory
from jaxarch.running.runs import over_seeds as over_seeds
from jaxarch.running.stage import FunctionStage as FunctionStage
from jaxarch.running.stage import HostSearch as HostSearch
from jaxarch.running.stage import Needs as Needs
from jaxarch.running.stage import Stage as Stage
from jaxarch.running.stepwise import Stepwise as Stepwise
from jaxarch.running.strategy import Strategy as Strategy
from jaxarch.running.strategy import chain as chain
from jaxarch.running.training import Training as Training
from jaxarch.running.training import TrainState as TrainState
