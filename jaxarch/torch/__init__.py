"""PyTorch modules, read through torchax: modules as JAX functions, and smaller modules.

PyTorch and torchax are imported on first use (`pip install 'jaxarch[torch]'`).
"""

from jaxarch.torch._modules import ShrunkModule, as_function, plan, shrink

__all__ = ["ShrunkModule", "as_function", "plan", "shrink"]
