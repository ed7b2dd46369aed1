"""Files of masks, weights and checkpoints, and training batches from a loader, prefetched and augmented."""

from jaxarch.io._augmentation import crop_and_flip as crop_and_flip
from jaxarch.io._checkpoints import Checkpoints as Checkpoints
from jaxarch.io._gather import take_images as take_images
from jaxarch.io._mask_files import load_mask as load_mask
from jaxarch.io._mask_files import save_mask as save_mask
from jaxarch.io._npz import read_npz as read_npz
from jaxarch.io._prefetch import Ahead as Ahead
from jaxarch.io._prefetch import Prefetch as Prefetch
from jaxarch.io._prefetch import prefetch as prefetch
from jaxarch.io._repeat import repeat as repeat
from jaxarch.io._stream import Stream as Stream
from jaxarch.io._stream import Window as Window
from jaxarch.io._trees import digest as digest
from jaxarch.io._trees import load_tree as load_tree
from jaxarch.io._trees import save_tree as save_tree
