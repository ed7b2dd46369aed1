"""Weight-free and binary networks in bits."""

from jaxarch.binary._pack import Layer as Layer
from jaxarch.binary._pack import Packed as Packed
from jaxarch.binary._pack import pack as pack
