from .evaluator import evaluate as evaluate
from .private_scores import PrivateEvaluation as PrivateEvaluation
from .results import Evaluation as Evaluation
from .results import Slice as Slice
from .tuning import Between as Between
from .tuning import TuningResult as TuningResult
from .tuning import tune as tune
