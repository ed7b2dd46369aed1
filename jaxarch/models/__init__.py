"""Networks, and supervised problems built from them."""

from jaxarch.models._direct_network import direct_network
from jaxarch.models._flax_models import SpectralMLP, as_model
from jaxarch.models._graph_network import graph_network, take_nodes
from jaxarch.models._model import Model
from jaxarch.models._parents import (
    CNN,
    GPT,
    MLP,
    VGG11,
    VGG16,
    VGG19,
    LeNet300100,
    ResNet,
    ResNet18,
    ResNet20,
    SpectralCNN,
    VisionTransformer,
)
from jaxarch.models._spectral_network import spectral_network
from jaxarch.models._supervised import supervised
from jaxarch.models._tanh_network import signed_output_loss, tanh_network

__all__ = [
    "CNN",
    "GPT",
    "MLP",
    "VGG11",
    "VGG16",
    "VGG19",
    "LeNet300100",
    "Model",
    "ResNet",
    "ResNet18",
    "ResNet20",
    "SpectralCNN",
    "SpectralMLP",
    "VisionTransformer",
    "as_model",
    "direct_network",
    "graph_network",
    "signed_output_loss",
    "spectral_network",
    "supervised",
    "take_nodes",
    "tanh_network",
]
