"""Parent models for architecture search, in Flax NNX: dense, convolutional, residual and attention networks.

A problem takes them as functions of rngs: `lambda rngs: models.CNN(inputs=3, outputs=10, rngs=rngs)`. Kernels
and a language model's embedding are masked by default; biases, the scales of norms and positional embeddings
are not. The sorted paths of the kernels follow the data flow from layer to layer. The projection of a
shortcut comes after the layers that it bypasses.
"""

from jaxarch.models._parents.convolutional import CNN as CNN
from jaxarch.models._parents.convolutional import VGG11 as VGG11
from jaxarch.models._parents.convolutional import VGG16 as VGG16
from jaxarch.models._parents.convolutional import VGG19 as VGG19
from jaxarch.models._parents.perceptrons import MLP as MLP
from jaxarch.models._parents.perceptrons import LeNet300100 as LeNet300100
from jaxarch.models._parents.residual import ResNet as ResNet
from jaxarch.models._parents.residual import ResNet18 as ResNet18
from jaxarch.models._parents.residual import ResNet20 as ResNet20
from jaxarch.models._parents.spectral_cnn import SpectralCNN as SpectralCNN
from jaxarch.models._parents.transformers import GPT as GPT
from jaxarch.models._parents.transformers import VisionTransformer as VisionTransformer
