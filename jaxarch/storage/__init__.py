"""Arrays in files, npz or safetensors: pytrees, masks, checkpoints; read without trusting who wrote them."""

from jaxarch.storage.checkpoints import Checkpoints as Checkpoints
from jaxarch.storage.files import as_path as as_path
from jaxarch.storage.files import claim as claim
from jaxarch.storage.files import complete_file as complete_file
from jaxarch.storage.mask_files import load_mask as load_mask
from jaxarch.storage.mask_files import save_mask as save_mask
from jaxarch.storage.npz import read_npz as read_npz
from jaxarch.storage.safetensors_files import read_safetensors as read_safetensors
from jaxarch.storage.trees import digest as digest
from jaxarch.storage.trees import load_tree as load_tree
from jaxarch.storage.trees import save_tree as save_tree
