"""Training batches that the host hands out: of any loader, of one form, read ahead of time."""

from jaxarch.streams.prefetch import Ahead as Ahead
from jaxarch.streams.prefetch import Prefetch as Prefetch
from jaxarch.streams.prefetch import prefetch as prefetch
from jaxarch.streams.repeat import repeat as repeat
from jaxarch.streams.stream import Stream as Stream
from jaxarch.streams.stream import Window as Window
