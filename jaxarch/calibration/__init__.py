"""Pruning of trained models by a handful of batches: inputs of weights, and weights solved for again."""

from jaxarch.calibration._alps import alps
from jaxarch.calibration._calibrate import Calibration, calibrate
from jaxarch.calibration._reconstruct import reconstruct
from jaxarch.calibration._sparsegpt import sparsegpt

__all__ = ["Calibration", "alps", "calibrate", "reconstruct", "sparsegpt"]
