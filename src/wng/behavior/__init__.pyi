from .distance import dual_ascent as dual_ascent
from .distance import dual_value as dual_value
from .distance import random_features as random_features
from .embedding import EMBEDDINGS as EMBEDDINGS
from .embedding import Embedding as Embedding
from .embedding import Trajectory as Trajectory
from .embedding import find_embedding as find_embedding
