from .catalog import Catalog as Catalog
from .catalog import read_catalog as read_catalog
from .datasets import load_dataset as load_dataset
from .ratings import Ratings as Ratings
from .splits import Holdout as Holdout
from .splits import Split as Split
