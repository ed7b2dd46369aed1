"""Training batches of any loader, read ahead of time; pictures varied on the device."""

from jaxarch.streams.augmentation import crop_and_flip as crop_and_flip
from jaxarch.streams.prefetch import Ahead as Ahead
from jaxarch.streams.prefetch import Prefetch as Prefetch
from jaxarch.streams.prefetch import prefetch as prefetch
from jaxarch.streams.repeat import repeat as repeat
from jaxarch.streams.stream import Stream as Stream
from jaxarch.streams.stream import Window as Window
