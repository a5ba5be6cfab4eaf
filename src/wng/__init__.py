"""wng: Wasserstein natural gradients for reinforcement learning and evolution strategies.

The names are in `__init__.pyi`. Each is imported when it is first used, so `import wng` is quick.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("wng")
__all__ += ["__version__"]
