"""Guarantees from theorems: certificates of a network that was found, and settings of a search."""

from jaxarch.certificates._certificate import Certificate as Certificate
from jaxarch.certificates._certificate import Compression as Compression
from jaxarch.certificates._certificate import Errors as Errors
from jaxarch.certificates._certificate import Flips as Flips
from jaxarch.certificates._certificate import Picked as Picked
from jaxarch.certificates._certify import certify as certify
from jaxarch.certificates._pick_to_learn import pick_to_learn as pick_to_learn
from jaxarch.certificates._prescribe import prescribe as prescribe
from jaxarch.certificates._prescription import Line as Line
from jaxarch.certificates._prescription import Prescription as Prescription
