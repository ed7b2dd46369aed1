"""Callbacks: everything that happens at the end of a chunk of steps, one file each."""

from jaxarch.run._callbacks.chunk_end import ChunkEnd as ChunkEnd
from jaxarch.run._callbacks.chunk_end import Decision as Decision
